/** A conversation. Its run goes on while you look at other views, and survives a reload of the page. */
import { pre, preview, RunBody } from "./body.js"
import { Markdown } from "./markdown.js"
import { announce, asText, el, empty, fill, name, problem, put, say } from "./dom.js"
import { asked_, sticking } from "./run.js"

const REMEMBERED = "chat"
const talks = new Map() // runs that this page follows, by session

export function open(app, place, id, { agent: wanted } = {}) {
  let session = id
  let talk = null // the run that is live, and its body
  const log = el("div.log")
  const title = el("h1", {}, session ? "Chat" : "New chat")
  const about = el("p.quiet")
  const agents = el("select", { name: "agent", "aria-label": "Agent" })
  const text = el("textarea", { name: "text", rows: 1, placeholder: "Write a message", "aria-label": "Message", maxlength: 100000, "data-search": true })
  const send = el("button.go", { type: "submit" }, "Send")
  const stop = el("button.cut", { type: "button", hidden: true, onclick: () => talk && app.stopRun(talk.run.id, { run: talk.run }) }, "Stop")
  const modes = el("button.plain", { type: "button", hidden: true, "aria-label": "Stop, with a choice of modes", onclick: () => talk && app.stopRun(talk.run.id, { run: talk.run, asks: true }) }, "Stop…")
  const form = el("form.composer", {}, el("div", {}, agents, stop, modes), el("div", {}, text, send))
  const fresh = el("a.button", { href: "#/chat", hidden: !session }, "New chat")
  const stick = sticking(true)
  put(place, el("header.head", {}, title, about, fresh), log, stick.node, form)

  const grow = () => {
    text.style.setProperty("height", "auto")
    text.style.setProperty("height", `${Math.min(text.scrollHeight + 2, 200)}px`)
  }
  text.addEventListener("input", grow)
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
    event.preventDefault()
    form.requestSubmit()
  })
  form.addEventListener("submit", async (event) => {
    event.preventDefault()
    const words = text.value.trim()
    if (!words) return
    text.value = ""
    grow()
    if (talk) await steer(words)
    else begin(words)
  })

  async function steer(words) {
    const isTaken = await app.attempt(() => talk.run.send(words))
    if (isTaken) log.append(el("div.said.mine.steered", { dir: "auto" }, el("p", {}, words), el("small", {}, "told at the next turn")))
    else text.value = words
    stick.follow()
  }

  function begin(words) {
    if (!agents.value) return app.toast("The server has nothing that can be started.", true)
    if (!session) {
      session = `chat-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`
      history.replaceState(null, "", `#/chat/${session}`)
      fresh.hidden = false
      say(title, "Chat")
      log.replaceChildren()
    }
    app.stored("sessionStorage", "halter.chat", session)
    const run = app.halter.run(agents.value, words, { session, remember: REMEMBERED })
    const body = new RunBody(app, run, { onChange: changed })
    log.append(el("div.said.mine", { dir: "auto" }, el("p", {}, words)))
    attach({ run, body, session, over: null })
    announce(`${agents.value} answers.`)
  }

  /** Shows a run of this session, and follows it if nobody does yet. */
  function attach(found) {
    talk = found
    talks.set(session, talk)
    log.append(talk.body.node)
    talk.onChange = changed
    talk.over ??= talk.body.follow().then(
      () => told(talk.run.outcome),
      (error) => talk.body.node.append(problem(error.status === 401 ? (app.askForKey(error.message), error) : error)),
    )
    const mine = talk
    talk.over.finally(() => {
      talks.delete(mine.session)
      if (talk === mine) talk = null
      changed()
    })
    changed()
  }

  function told(outcome) {
    if (outcome?.status === "completed" && outcome.text && outcome.text.length <= 400) announce(outcome.text)
    describe()
  }

  function changed() {
    const isLive = Boolean(talk)
    stop.hidden = modes.hidden = !isLive
    agents.disabled = isLive
    stop.disabled = talk?.run.status === "cancelling"
    say(send, isLive ? "Steer" : "Send")
    text.placeholder = isLive ? "Steer: it is told at its next turn" : "Write a message"
    stick.follow()
  }

  async function describe() {
    if (!session) return
    try {
      const found = await app.halter.request("GET", `/v1/sessions/${encodeURIComponent(session)}`)
      fill(title, found.title ? name(found.title) : "Chat")
      fill(about, el("code", {}, found.id), found.user ? [" with ", name(found.user)] : null)
    } catch {
      fill(about, el("code", {}, session))
    }
  }

  async function load() {
    await app.ready
    const choices = app.agents.map(({ name: each, description }) => el("option", { value: each, title: description }, each))
    fill(agents, choices.length ? choices : el("option", { value: "" }, "nothing to start"))
    if (wanted) agents.value = wanted
    if (!session) return greet()
    await describe()
    try {
      await history_()
    } catch (error) {
      if (error.status === 401) return app.askForKey(error.message)
      if (error.status !== 404) return fill(log, problem(error, () => app.go(`/chat/${session}?again`)))
    }
    stick.follow()
  }

  function greet() {
    const cards = app.agents.map(({ name: each, description, kind, model }) => {
      const choose = () => ((agents.value = each), text.focus())
      return el("li", {}, el("button.card", { type: "button", onclick: choose }, el("strong", {}, name(each)), el("span", {}, description || kind), el("small", {}, model ?? kind)))
    })
    if (cards.length) fill(log, el("p.lead", {}, "Whom do you want to talk with?"), el("ul.cards", { "aria-label": "Agents" }, cards))
    else fill(log, empty("There is nobody to talk with", "The server serves no agent, or your key may not list them."))
    text.focus({ preventScroll: true })
  }

  /** What was said, and the run that is live: the one that this tab followed before, or the one that has the turn. */
  async function history_() {
    const path = `/v1/sessions/${encodeURIComponent(session)}`
    const known = talks.get(session)
    const noted = !known && app.stored("sessionStorage", "halter.chat") === session ? app.halter.resume(REMEMBERED, { from: "start" }) : null
    const [{ messages }, { running }] = await Promise.all([
      app.halter.request("GET", `${path}/messages`).catch(missing({ messages: [] })),
      app.halter.request("GET", path).catch(missing({ running: null })),
    ])
    const { runs } = await app.halter.runs({ session, limit: 1 })
    if (runs[0] && app.agents.some((each) => each.name === runs[0].agent)) agents.value = runs[0].agent
    const live = runs[0] && !runs[0].ended_at ? runs[0].id : running
    const run = known?.run ?? (noted && noted.id === live ? noted : null) ?? (live ? app.halter.find(live, { from: "start" }) : null)
    fill(log, messages.length ? said(messages) : null)
    if (!run) return
    const input = el("div.said.mine", { dir: "auto" })
    log.append(input)
    const found = known ?? { run, session, over: null, body: new RunBody(app, run, { onChange: changed }) }
    const showInput = () => {
      const root = found.body.runs.get(run.id)
      if (!input.childElementCount && root?.input !== undefined) put(input, asked_(root.input))
      input.hidden = !input.childElementCount
      if (isSaid(messages, input.textContent)) input.remove()
    }
    showInput()
    const timer = setInterval(() => (showInput(), input.childElementCount && clearInterval(timer)), 50)
    attach(found)
  }

  load()
  return {
    stays: (other) => other === session && other !== null,
    close() {
      stick.close()
    },
    onKey(event) {
      if (!talk || (event.key !== "s" && event.key !== "m")) return false
      app.stopRun(talk.run.id, { run: talk.run, asks: event.key === "m" })
      return true
    },
  }
}

const missing = (value) => (error) => {
  if (error.status !== 404) throw error
  return value
}

/** True if the turn's input is among the stored messages already. */
function isSaid(messages, input) {
  const last = messages.findLast((message) => message.role === "user")
  const text = last?.parts.map((part) => part.text ?? "").join("")
  return text === input && messages.at(-1) === last
}

/** Stored messages, with the results of tools beside their calls. */
function said(messages) {
  const calls = new Map()
  const drawn = []
  for (const message of messages) {
    const text = message.parts.filter((part) => part.type === "text" || part.type === "refusal").map((part) => part.text).join("")
    if (message.role === "user" && text) drawn.push(el("div.said.mine", { dir: "auto" }, el("p", {}, text)))
    else if (message.role === "assistant" && text) drawn.push(answer(message, text))
    else if (text && message.role !== "tool") drawn.push(el("p.note", { dir: "auto" }, text))
    for (const part of message.parts) {
      if (part.type === "tool_call") drawn.push(call(part, calls))
      else if (part.type === "tool_result" && calls.has(part.call_id)) put(calls.get(part.call_id), el("p.label", {}, "Result"), pre(asText(part.content), "Result"))
    }
  }
  return drawn
}

function answer(message, text) {
  const markdown = new Markdown()
  markdown.set(text, true)
  return el("article.said", { "data-interrupted": message.interrupted }, markdown.node)
}

function call({ id, name: title, arguments: args }, calls) {
  const parts = el("div", {}, el("p.label", {}, "Arguments"), pre(args, `Arguments of ${title}`))
  calls.set(id, parts)
  return el("details.tool", {}, el("summary", {}, el("strong", {}, name(title)), " ", el("code.preview", {}, preview(args))), parts)
}
