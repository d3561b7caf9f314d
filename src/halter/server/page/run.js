/** One run: its lines in time, what it says and does, and the ways to steer and stop it. */
import { RunLost } from "../client.js"
import { RunBody } from "./body.js"
import { asText, count, el, fill, isFinal, moment, money, name, problem, put, say, short, took, whole, WORDS } from "./dom.js"
import { RunLine, whoStopped } from "./lines.js"

export function open(app, place, id) {
  const run = app.halter.find(id, { from: "start" })
  let record = null
  const title = el("h1", {}, name(short(id)))
  const status = el("p.status")
  const facts = el("dl.facts")
  const lanes = new Lanes()
  const asked = el("div.asked")
  const stop = el("button.cut", { type: "button", "aria-keyshortcuts": "s", onclick: () => ends() }, "Stop")
  const modes = el("button", { type: "button", "aria-keyshortcuts": "m", onclick: () => ends(true) }, "Stop…")
  const actions = el("p.actions", { hidden: true }, stop, modes)
  const steer = steering(app, run)
  const body = new RunBody(app, run, { onChange: draw })
  const stick = sticking(false)
  put(place, el("header.head.sticky", {}, title, status, actions), facts, lanes.node, asked, body.node, steer.node, stick.node)

  function draw() {
    const root = body.runs.get(id)
    const state = run.outcome?.status ?? (body.questions.length ? "waiting" : (root?.status ?? record?.status ?? "queued"))
    if (root?.name) fill(title, name(root.name), " ", el("small", {}, short(id)))
    place.dataset.status = state
    say(status, WORDS[state])
    actions.hidden = steer.node.hidden = isFinal(state)
    stop.disabled = state === "cancelling"
    lanes.draw([...body.runs.values()], app.live.now(), run.outcome)
    if (root && !asked.childElementCount) put(asked, el("div.said.mine", { dir: "auto" }, asked_(root.input)))
    stick.follow()
  }

  async function ends(asks = false) {
    if (await app.stopRun(id, { run, asks })) stick.end()
  }

  async function describe() {
    try {
      record = await app.halter.get(id)
    } catch {
      return // the stream says what is wrong
    }
    const link = (view, key, value) => el("a", { href: `#/${view}?${key}=${encodeURIComponent(value)}` }, name(value))
    const said = [
      ["Began", moment(record.started_at ?? record.created_at)],
      record.ended_at && ["Took", took((record.ended_at - (record.started_at ?? record.created_at)) * 1000)],
      ["Tokens", `${whole(record.usage.input)} in, ${whole(record.usage.output)} out${record.usage.estimated ? " (about)" : ""}`],
      isFinal(record.status) && ["Cost", money(record.cost)],
      record.session && ["Session", el("a", { href: `#/chat/${encodeURIComponent(record.session)}` }, name(record.session))],
      record.user && ["User", link("runs", "user", record.user)],
      record.tags.length && ["Tags", record.tags.map((tag, at) => [at ? ", " : "", link("runs", "tag", tag)])],
      (record.cancellation ?? record.cancelling) && ["Stopped by", whoStopped(record.cancellation ?? record.cancelling)],
      ["Id", el("code", {}, record.id)],
    ]
    fill(facts, said.filter(Boolean).map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))))
    if (!body.runs.size) fill(title, name(record.agent), " ", el("small", {}, short(id)))
    draw()
  }

  describe()
  body.follow().then(describe, (error) => {
    if (error.status === 401) return app.askForKey(error.message)
    fill(place, error instanceof RunLost || error.status === 404 ? problem({ message: `There is no run ${id}, or it is not yours.` }) : problem(error, () => location.reload()))
  })
  const timer = setInterval(() => run.outcome || draw(), 500)
  return {
    close() {
      clearInterval(timer)
      stick.close()
      run.close()
    },
    onKey(event) {
      if (run.outcome || (event.key !== "s" && event.key !== "m")) return false
      ends(event.key === "m")
      return true
    },
  }
}

export function asked_(input) {
  if (Array.isArray(input)) return input.map((each) => el("p", {}, asText(each?.content ?? each?.parts?.map((part) => part.text).join("") ?? each)))
  return el("p", {}, asText(input))
}

/** The tree of runs as lines on one axis. */
class Lanes {
  node = el("section.lanes", { "aria-label": "Runs in time" })
  #list = el("ol")
  #scale = el("p.axis", { "aria-hidden": "true" }, el("span"), el("span"))
  #rows = new Map()

  constructor() {
    put(this.node, this.#list, this.#scale)
  }

  draw(runs, now, outcome) {
    const root = runs.find((run) => run.parent_id === null) ?? runs[0]
    this.node.hidden = !root?.started_at
    if (this.node.hidden) return
    const end = Math.max(root.ended_at ?? now, root.started_at + 0.001)
    const to = outcome ? end + (end - root.started_at) * 0.02 : end
    for (const run of runs) {
      let row = this.#rows.get(run.run_id)
      if (!row) {
        row = { line: new RunLine(), words: el("span.unseen"), title: el("span.who") }
        this.#rows.set(run.run_id, row)
        const depth = this.#depth(run, runs)
        this.#list.append(el("li", { style: { "--level": depth } }, row.title, row.line.node, row.words))
      }
      fill(row.title, name(run.name || short(run.run_id)))
      row.line.set(run, root.started_at, to, run.parts)
      const tools = run.parts.filter((part) => part.kind === "tool").length
      const lasted = run.started_at ? took(((run.ended_at ?? now) - run.started_at) * 1000) : "not begun"
      say(row.words, outcome ? `${WORDS[run.status]} after ${lasted}, ${count(tools, "tool call")}` : WORDS[run.status])
    }
    say(this.#scale.firstChild, moment(root.started_at))
    say(this.#scale.lastChild, took((end - root.started_at) * 1000))
  }

  #depth(run, runs) {
    let depth = 0
    for (let at = run; at?.parent_id && depth < 9; at = runs.find((each) => each.run_id === at.parent_id)) depth++
    return depth
  }
}

function steering(app, run) {
  const field = el("input", { name: "text", autocomplete: "off", maxlength: 100000, placeholder: "Steer: it is told at its next turn", "aria-label": "A message to the running agent" })
  const send = async (event) => {
    event.preventDefault()
    const text = field.value.trim()
    if (!text) return
    field.value = ""
    const isTaken = await app.attempt(() => run.send(text))
    if (isTaken === false) app.toast("It was too late: the run is over.", true)
    else if (isTaken) app.toast("It is told at its next turn.")
    if (!isTaken) field.value = text
  }
  return { node: el("form.steer.inline", { hidden: true, onsubmit: send }, field, el("button", {}, "Send")) }
}

/** Keeps the end of the page in view while it grows, as long as the reader is there. */
export function sticking(isAtEnd) {
  let lastY = scrollY
  const button = el("button.newest", { type: "button", hidden: true, onclick: end }, "↓ newest")
  const look = () => {
    const left = document.documentElement.scrollHeight - innerHeight - scrollY
    if (left < 90) isAtEnd = true
    else if (scrollY < lastY) isAtEnd = false // it was the reader who went up
    lastY = scrollY
    button.hidden = isAtEnd
  }
  function follow() {
    if (isAtEnd) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" })
    else button.hidden = false
  }
  function end() {
    isAtEnd = true
    follow()
  }
  addEventListener("scroll", look, { passive: true })
  return { node: button, follow, end, close: () => removeEventListener("scroll", look) }
}
