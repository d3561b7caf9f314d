/** The page: views by address, the key, the theme, the keyboard. */
import { ConnectionFailed, Halter } from "../client.js"
import { announce, count, el, fill, MODES, problem, say, toast } from "./dom.js"
import { Live } from "./live.js"
import { receiptInWords } from "./lines.js"

const $ = (id) => document.getElementById(id)
const base = new URL("..", import.meta.url).href

function stored(storage, name, value) {
  try {
    if (value === undefined) return globalThis[storage].getItem(name)
    value === null ? globalThis[storage].removeItem(name) : globalThis[storage].setItem(name, value)
  } catch {
    // a browser that stores nothing: then it is asked again
  }
  return null
}

/** What all views share. */
export const app = {
  halter: new Halter({ url: base, key: stored("sessionStorage", "halter.key") }),
  live: null,
  agents: [],
  stored,
  toast,
  go: (path) => (location.hash = path),
  /** Does something on the server; what fails is told. Resolves to `undefined` then. */
  async attempt(act) {
    try {
      return await act()
    } catch (error) {
      if (error.status === 401) askForKey(error.message)
      else toast(error instanceof ConnectionFailed ? "The server does not answer." : error.message, true)
      return undefined
    }
  },
  askForKey,
  stopRun,
}

// --- views -----------------------------------------------------------------------------------------------------

const VIEWS = {
  live: ["Live runs", () => import("./live.js")],
  run: ["Run", () => import("./run.js")],
  chat: ["Chat", () => import("./chat.js")],
  sessions: ["Sessions", () => import("./sessions.js")],
  runs: ["Runs", () => import("./runs.js")],
  figures: ["Figures", () => import("./figures.js")],
  audit: ["Audit log", () => import("./audit.js")],
}
let view = null
let turn = 0

function placeNow() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?")
  const [first, ...rest] = path.split("/").map(decodeURIComponent)
  return { view: first in VIEWS ? first : "live", id: rest.join("/") || null, query: Object.fromEntries(new URLSearchParams(query)) }
}

async function show() {
  const mine = ++turn
  const { view: which, id, query } = placeNow()
  if (view?.which === which && view.stays?.(id, query)) return
  const [title, load] = VIEWS[which]
  view?.close?.()
  view = null
  document.title = `${title} · Halter`
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#/${which}` || (which === "run" && link.hash === "#/runs")
    isHere ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")
  }
  const module = await load()
  if (mine !== turn) return
  const place = el("div.view", { "data-view": which })
  fill($("main"), place)
  view = module.open(app, place, id, query)
  view.which = which
  if (mine > 1) {
    $("main").focus({ preventScroll: true })
    scrollTo(0, 0)
    announce(title)
  }
}

// --- dialogs ---------------------------------------------------------------------------------------------------

/** Opens a dialog; `close` is called with its form's values, or `null`. */
export function dialog(title, content, { action, isCut = false, focus } = {}) {
  return new Promise((resolve) => {
    const cancel = el("button", { type: "button", onclick: () => node.close() }, action ? "Cancel" : "Close")
    const go = action && el(`button${isCut ? ".cut" : ".go"}`, { type: "submit" }, action)
    const form = el("form", { method: "dialog" }, el("h2", { id: "dialog-title" }, title), content, el("p.actions", {}, cancel, go))
    const node = el("dialog", { "aria-labelledby": "dialog-title" }, form)
    let values = null
    form.addEventListener("submit", (event) => {
      event.preventDefault() // the policy of this page lets no form be sent
      values = Object.fromEntries(new FormData(form))
      node.close()
    })
    node.addEventListener("close", () => {
      node.remove()
      resolve(values)
    })
    document.body.append(node)
    node.showModal()
    const first = focus && form.querySelector(focus)
    if (first) first.focus()
  })
}

/** The choice of a mode, and a message. */
export function stopFields() {
  const modes = Object.entries(MODES).map(([mode, [title, words]], at) =>
    el("label.choice", {}, el("input", { type: "radio", name: "mode", value: mode, checked: at === 0 }), el("span", {}, el("strong", {}, title), el("small", {}, words))),
  )
  return [
    el("fieldset", {}, el("legend", {}, "When"), modes),
    el("label.field", {}, "Why (is kept in the record)", el("input", { name: "message", maxlength: 500, autocomplete: "off" })),
  ]
}

/** Stops a run; `asks`: with a choice of modes first. Resolves to its record. */
async function stopRun(id, { asks = false, run = null } = {}) {
  const choice = asks ? await dialog("Stop this run", stopFields(), { action: "Stop", isCut: true }) : {}
  if (!choice) return undefined
  const body = { mode: choice.mode ?? "immediate", message: choice.message || undefined }
  const record = await app.attempt(() =>
    run ? run.cancel(body.message, { ...body, wait: 10 }) : app.halter.insist("POST", `/v1/runs/${encodeURIComponent(id)}/cancel?wait=10`, body),
  )
  if (record) announce(record.receipt ? receiptInWords(record) : "It is being stopped.")
  return record
}

async function stopAll() {
  const live = app.live.count
  const field = (label, name) => el("label.field", {}, label, el("input", { name, autocomplete: "off" }))
  const which = el("details", {}, el("summary", {}, "Only some of them"), field("Tag", "tag"), field("Agent", "agent"), field("Session", "session"))
  const words = el("p", {}, `${count(live, "run is", "runs are")} live. This stops all of them that you may see.`)
  const choice = await dialog("Stop all runs", [words, ...stopFields(), which], { action: "Stop them", isCut: true })
  if (!choice) return
  const { mode, message, tag, agent, session } = choice
  const filters = Object.fromEntries(Object.entries({ tag, agent, session }).filter(([, value]) => value))
  const body = { mode, ...(message && { message }), ...(Object.keys(filters).length ? filters : { all: true }) }
  const stopped = await app.attempt(() => app.halter.cancelAll({ ...body, wait: 10 }))
  if (stopped) toast(stopped.length ? `${count(stopped.length, "run")} stopped.` : "No live run fits.")
}

// --- the key ---------------------------------------------------------------------------------------------------

let isAsking = false

async function askForKey(words = "") {
  if (isAsking) return
  isAsking = true
  const input = el("input", { name: "key", type: "password", autocomplete: "off", spellcheck: "false", value: app.halter.key ?? "", "aria-describedby": "key-words" })
  const text = `${words ? "This server wants a key. " : ""}It is kept in this tab alone, until you close it. Leave it empty to forget it.`
  const choice = await dialog("API key", [el("p", { id: "key-words" }, text), el("label.field", {}, "Key", input)], { action: "Use it", focus: "input" })
  isAsking = false
  if (!choice) return
  app.halter.key = choice.key.trim() || null
  stored("sessionStorage", "halter.key", app.halter.key)
  begin()
  view?.close?.()
  view = null
  show()
}

// --- keyboard --------------------------------------------------------------------------------------------------

const KEYS = [
  ["1 … 6", "live, chat, sessions, runs, figures, audit"],
  ["n", "a new chat"],
  ["/", "search or filter"],
  ["↑ ↓ or j k", "move in a list"],
  ["→ ←", "show or hide the runs below a run"],
  ["Enter", "open the run"],
  ["s", "stop the run that is chosen or open"],
  ["m", "stop it, with a choice of modes"],
  ["Shift S", "stop all"],
  ["Esc", "back to the live runs; closes a dialog"],
  ["?", "these keys"],
]

async function help() {
  const isOn = stored("localStorage", "halter.keys") !== "off"
  const rows = KEYS.map(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)])
  const toggle = el("input", { type: "checkbox", checked: isOn, onchange: () => stored("localStorage", "halter.keys", toggle.checked ? null : "off") })
  await dialog("Keys", [el("dl.keys", {}, rows), el("label.choice", {}, toggle, el("span", {}, "Single keys act"))])
}

function onKey(event) {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]")
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return
  if (event.key === "Escape" && !isTyping && placeNow().view === "run") return app.go("/live")
  if (isTyping || stored("localStorage", "halter.keys") === "off") return
  const views = ["live", "chat", "sessions", "runs", "figures", "audit"]
  if (views[event.key - 1]) app.go(`/${views[event.key - 1]}`)
  else if (event.key === "?") help()
  else if (event.key === "S") stopAll()
  else if (event.key === "n") app.go("/chat")
  else if (event.key === "/") document.querySelector("main [data-search]")?.focus()
  else if (!view?.onKey?.(event)) return
  event.preventDefault()
}

// --- theme -----------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"]

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
  say($("theme"), `Theme: ${theme}`)
  stored("localStorage", "halter.theme", theme === "auto" ? null : theme)
}

// --- beginning -------------------------------------------------------------------------------------------------

function begin() {
  app.live?.close()
  app.live = new Live(app.halter)
  app.live.watch(({ state, count: live, error }) => {
    document.body.dataset.connection = state
    const words = { open: live ? count(live, "live run") : "no live runs", lost: "no connection: trying again", waiting: "connecting" }
    say($("connection"), words[state])
    $("stop-all").disabled = !live
    if (error?.status === 401) askForKey(error.message)
    else if (error && state === "lost" && error.status) say($("connection"), error.message)
  })
  app.live.open()
  app.agents = []
  app.ready = app.halter.agents().then((agents) => (app.agents = agents), () => [])
}

setTheme(THEMES.includes(stored("localStorage", "halter.theme")) ? stored("localStorage", "halter.theme") : "auto")
$("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3]))
$("key").addEventListener("click", () => askForKey())
$("help").addEventListener("click", help)
$("stop-all").addEventListener("click", stopAll)
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault()
  $("main").focus()
})
addEventListener("hashchange", show)
addEventListener("keydown", onKey)
addEventListener("unhandledrejection", (event) => toast(event.reason?.message ?? "Something went wrong.", true))
begin()
show().catch((error) => fill($("main"), problem(error, () => location.reload())))
