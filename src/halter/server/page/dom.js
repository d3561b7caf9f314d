/** Elements from plain text. Nothing here, or anywhere in this page, makes HTML of what a model or a tool has said. */

// Controls, characters that turn the direction of a text, and characters that show nothing. Joiners inside emoji and
// between Arabic or Indic letters are ordinary writing, and so are variation selectors.
const HIDING = String.raw`\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B\u200E\u200F\u2028-\u202E\u2060-\u206F\u3164\uFEFF\uFFA0\uFFF0-\uFFFB`
const HIDDEN = new RegExp(
  String.raw`(?<!\p{Extended_Pictographic}\uFE0F?[\u{1F3FB}-\u{1F3FF}]?)\u200D|(?<![\p{Script=Arabic}\p{Script=Devanagari}\p{Script=Bengali}])\u200C|[${HIDING}]|[\u{E0000}-\u{E0FFF}]`,
  "gu",
)
const MAY_HIDE = new RegExp(String.raw`[${HIDING}\u200C\u200D]|\uDB40`)

/** The text with each hidden character written out, such as ⟨U+202E⟩. */
export function shown(text) {
  text = String(text ?? "").replaceAll("\r\n", "\n")
  if (!MAY_HIDE.test(text)) return text
  return text.replace(HIDDEN, (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`)
}

/** An element: `el("p.note", { title: "…", onclick }, "text", child, null)`. Texts are shown as they are. */
export function el(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".")
  const node = document.createElement(tag)
  if (classes.length) node.className = classes.join(" ")
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value)
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each)
    else if (name in PROPERTIES) node[name] = value
    else node.setAttribute(name, value === true ? "" : shown(value))
  }
  put(node, ...children)
  return node
}

const PROPERTIES = { value: 1, checked: 1, disabled: 1, hidden: 1, selected: 1, tabIndex: 1 }

/** Appends elements and texts. */
export function put(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue
    node.append(child instanceof Node ? child : shown(child))
  }
  return node
}

/** Replaces what an element holds. */
export function fill(node, ...children) {
  node.replaceChildren()
  return put(node, ...children)
}

/** Sets a text, if it is another one: an unchanged one is not announced again. */
export function say(node, text) {
  text = shown(text)
  if (node.textContent !== text) node.textContent = text
}

/** An element whose text may be of either direction, and does not turn its neighbours. */
export const name = (text, what = "bdi") => el(what, { dir: "auto" }, text)

// --- words for values ------------------------------------------------------------------------------------------

export const WORDS = {
  queued: "queued",
  running: "running",
  waiting: "waits for an answer",
  cancelling: "stopping",
  completed: "completed",
  failed: "failed",
  cancelled: "stopped",
}
export const REASONS = {
  user_stop: "somebody pressed stop",
  superseded: "a newer run took its place",
  signal: "the process got a signal",
  client_disconnect: "its client left",
  caller_cancelled: "its caller was cancelled",
  scope_exited: "its block was left",
  handle_dropped: "nobody held it any more",
  timeout: "its time was up",
  budget_tokens: "its tokens were spent",
  budget_cost: "its money was spent",
  budget_calls: "its calls were spent",
  parent_cancelled: "the run above it was stopped",
  parent_finished: "the run above it had finished",
  sibling_failed: "a run beside it failed",
  lost_race: "another one was faster",
  shutdown: "the server shut down",
  owner_lost: "its process is gone",
  admin: "an administrator stopped it",
  policy: "a policy stopped it",
}
export const MODES = {
  immediate: ["Now", "The model and its tools end now. Tools get a moment to clean up."],
  drain_tools: ["After its tools", "The model ends now. Tools that run may finish."],
  after_turn: ["After this turn", "The turn is finished, then no other begins."],
  kill: ["Kill", "Nothing gets any grace."],
}
export const isFinal = (status) => status === "completed" || status === "failed" || status === "cancelled"

const number = new Intl.NumberFormat("en")
export const count = (value, one, many = `${one}s`) => `${number.format(value)} ${value === 1 ? one : many}`
export const whole = (value) => number.format(value)

/** Milliseconds, as a person says them. */
export function took(ms) {
  if (ms === null || ms === undefined) return "—"
  if (ms < 10) return `${Math.round(ms * 10) / 10} ms`
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`
  return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`
}

export function money(usd) {
  if (usd === null || usd === undefined) return "unknown"
  return `$${usd >= 1 || usd === 0 ? usd.toFixed(2) : usd.toPrecision(2)}`
}

/** A moment: today's time, or the date. `at`: seconds since the epoch. */
export function moment(at) {
  if (!at) return "—"
  const date = new Date(at * 1000)
  const isToday = date.toDateString() === new Date().toDateString()
  const day = isToday ? {} : { day: "numeric", month: "short" }
  return date.toLocaleString("en-GB", { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit" })
}

export const short = (id) => (/^[0-9a-f]{8}-[0-9a-f]{4}/.test(id) ? `…${id.slice(-8)}` : id)

/** Any value as text: text as it is, the rest as JSON. */
export function asText(value) {
  if (value === null || value === undefined) return ""
  return typeof value === "string" ? value : JSON.stringify(value, null, 2)
}

// --- telling ---------------------------------------------------------------------------------------------------

const queue = []
let telling = 0

/** Tells a screen reader something: one sentence at a time, and the newest three at most. */
export function announce(text, isUrgent = false) {
  const place = document.getElementById(isUrgent ? "alerts" : "news")
  queue.push([place, text])
  if (queue.length > 3) queue.splice(0, queue.length - 3)
  if (!telling) tell()
}

function tell() {
  const next = queue.shift()
  telling = next ? setTimeout(tell, 900) : 0
  if (!next) return
  next[0].textContent = ""
  requestAnimationFrame(() => (next[0].textContent = shown(next[1])))
}

/** A note that goes away by itself; an error stays until it is closed. */
export function toast(text, isError = false) {
  const close = el("button.plain", { type: "button", "aria-label": "Close this note", onclick: () => note.remove() }, "×")
  const note = el(`div.toast${isError ? ".error" : ""}`, {}, el("span", {}, text), close)
  document.getElementById("toasts").append(note)
  announce(text, isError)
  if (!isError) setTimeout(() => note.remove(), 6000)
}

/** Calls `draw` once per frame, however often it is asked for. A page in the background draws once a second. */
export function drawing(draw) {
  let isAsked = false
  return () => {
    if (isAsked) return
    isAsked = true
    const act = () => {
      isAsked = false
      draw()
    }
    document.hidden ? setTimeout(act, 1000) : requestAnimationFrame(act)
  }
}

/** What is shown where there is nothing: a slack line, and what to do. */
export const empty = (title, ...words) => blank("", {}, title, el("p", {}, ...words))

const blank = (kind, set, title, ...rest) => el(`div.empty${kind}`, set, el("span.slack", { "aria-hidden": "true" }), el("h2", {}, title), rest)

/** What is shown where something failed. */
export function problem(error, again) {
  const retry = again && el("button", { type: "button", onclick: again }, "Try again")
  const words = error.status === 403 ? `${error.message}. Ask for a key that has it.` : error.message
  return blank(".broken", { role: "alert" }, "This did not work", el("p", {}, words), retry)
}
