/** What a run says and does, as it happens: messages, tools, questions, and how it ended. */
import { announce, asText, count, drawing, el, fill, moment, name, put, say, short, took, WORDS } from "./dom.js"
import { receipt, receiptInWords, whoStopped } from "./lines.js"
import { Markdown } from "./markdown.js"

const LONGEST_OUTPUT = 20_000 // characters of a tool's output that are shown, its newest

/** Follows a run and draws it. `onChange` is called once per frame in which something changed. */
export class RunBody {
  node = el("div.body", { role: "log", "aria-live": "off", "aria-label": "What the run says and does" })
  runs = new Map() // each run of the tree: its state, and what it did when: `parts`
  outcome = null
  #blocks = new Map()
  #dirty = new Set()
  #speaker = null
  #draw

  constructor(app, run, { onChange }) {
    this.app = app
    this.run = run
    this.#draw = drawing(() => {
      for (const block of this.#dirty) block.draw()
      this.#dirty.clear()
      onChange(this)
    })
  }

  /** Until the run is over; throws if nothing more can be known of it. */
  async follow() {
    const timer = setInterval(() => this.#look().catch(() => {}), 1000)
    try {
      for await (const batch of this.run.batches()) {
        for (const event of batch) this.take(event)
        this.#draw()
      }
    } finally {
      clearInterval(timer)
    }
    if (this.run.outcome) this.#end(this.run.outcome)
    return this.run.outcome
  }

  /** Finds the processes of running tools. */
  async #look() {
    if (![...this.#blocks.values()].some(({ status }) => status === "running")) return
    const path = `/v1/runs/${encodeURIComponent(this.run.id)}/processes`
    for (const { run_id, call_id, pid, elapsed } of (await this.app.halter.request("GET", path)).processes) {
      const call = this.#blocks.get(`t ${run_id} ${call_id}`)
      if (call) this.#dirty.add(Object.assign(call, { process: `, process ${pid} for ${took(elapsed * 1000)}` }))
    }
    this.#draw()
  }

  take(event) {
    const act = TAKES[event.type]
    if (act) act(this, event)
  }

  get questions() {
    return [...this.#blocks.values()].filter((block) => block instanceof Question && !block.outcome)
  }

  block(key, make, event) {
    let block = this.#blocks.get(key)
    if (!block) {
      this.#blocks.set(key, (block = make()))
      this.#place(block.node, event)
    }
    this.#dirty.add(block)
    return block
  }

  note(event, ...words) {
    this.node.append(el(`p.note${event.run_id === this.run.id ? "" : ".below"}`, {}, ...words))
    this.#draw()
  }

  /** Puts a block at the end, under the name of who speaks. */
  #place(node, event) {
    const isBelow = event.run_id !== this.run.id
    const speaker = `${event.run_id} ${event.agent ?? ""}`
    if (speaker !== this.#speaker && (isBelow || this.#speaker !== null)) {
      const who = event.agent ?? this.runs.get(event.run_id)?.name ?? short(event.run_id)
      this.node.append(el(`p.speaker${isBelow ? ".below" : ""}`, {}, name(who), event.task ? [" · ", name(event.task, "small")] : null))
    }
    this.#speaker = speaker
    node.classList.toggle("below", isBelow)
    this.node.append(node)
  }

  clear() {
    this.node.replaceChildren()
    this.#blocks.clear()
    this.#dirty.clear()
    this.#speaker = null
    this.runs.clear()
  }

  state(event) {
    let state = this.runs.get(event.run_id)
    if (!state) this.runs.set(event.run_id, (state = { run_id: event.run_id, parent_id: event.parent_id, name: "", kind: "", status: "queued", parts: [] }))
    return state
  }

  begin(event, kind, key) {
    this.state(event).parts.push({ kind, key, from: event.at })
  }

  finish(event, key) {
    const part = this.state(event).parts.findLast((each) => each.key === key && !each.to)
    if (part) part.to = event.at
  }

  #end(outcome) {
    if (this.outcome) return
    this.outcome = outcome
    for (const state of this.runs.values()) for (const part of state.parts) part.to ??= state.ended_at
    const { status, error, output, text, receipt: found, cancellation } = outcome
    if (error) this.node.append(el("div.failure", { role: "group", "aria-label": "Error" }, el("strong", {}, name(error.type)), el("p", { dir: "auto" }, error.message)))
    if (status === "completed" && output !== null && typeof output !== "string" && asText(output) !== text) {
      this.node.append(el("details.tool", {}, el("summary", {}, "Output"), pre(asText(output), "Output")))
    }
    if (found) this.node.append(receipt(found, cancellation))
    else if (status === "cancelled") this.node.append(el("p.note", {}, "Stopped", cancellation ? [": ", whoStopped(cancellation)] : " before it began."))
    announce(found ? receiptInWords(outcome) : `${WORDS[status]}.`)
    this.#draw()
  }
}

// --- events ----------------------------------------------------------------------------------------------------

const message = (body, event) => body.block(`m ${event.message_id}`, () => new Said(), event)
const tool = (body, event) => body.block(`t ${event.run_id} ${event.call_id}`, () => new Tool(event), event)

const TAKES = {
  snapshot(body, state) {
    body.clear()
    for (const run of state.runs) body.runs.set(run.run_id, { ...run, parts: [] })
    for (const each of state.messages) {
      Object.assign(message(body, each), { text: each.text, reasoning: each.reasoning, isFinished: each.finished, isInterrupted: each.interrupted })
    }
    for (const each of state.tools) Object.assign(tool(body, each), { ...each, args: each.arguments })
    for (const each of state.open.inputs) body.block(`q ${each.request_id}`, () => new Question(body, each), each)
  },
  gap(body, { from, to }) {
    body.note({ run_id: body.run.id }, to ? `${count(to - from + 1, "event")} are not kept any more.` : "Earlier events are not kept any more.")
  },
  "run.queued"(body, event) {
    body.state(event).queued_at = event.at
  },
  "run.started"(body, event) {
    const { name: title, kind, input, model, at } = event
    Object.assign(body.state(event), { name: title, kind, input, model, started_at: at, status: "running" })
    if (event.run_id !== body.run.id) body.note(event, el("strong", {}, name(title)), ` (${kind}) began`)
  },
  "run.cancelling"(body, event) {
    Object.assign(body.state(event), { status: "cancelling", cancelling: event })
    if (event.run_id === body.run.id) body.note(event, "Asked to stop. ", whoStopped(event))
  },
  "run.completed": ended,
  "run.failed": ended,
  "run.cancelled": ended,
  "model.requested"(body, event) {
    body.begin(event, "asks", event.message_id)
  },
  "model.retry"(body, event) {
    body.note(event, `The model did not answer (${event.cause.message}). Trying again in ${took(event.delay * 1000)}.`)
  },
  "text.delta"(body, event) {
    message(body, event).text += event.text
    const part = body.runs.get(event.run_id)?.parts.at(-1)
    if (part?.kind === "asks" && part.key === event.message_id) {
      part.to = event.at
      body.begin(event, "says", event.message_id)
    }
  },
  "reasoning.delta"(body, event) {
    message(body, event).reasoning += event.text
  },
  "message.finished"(body, event) {
    const said = (type) => event.message.parts.filter((part) => part.type === type).map((part) => part.text).join("")
    body.finish(event, event.message_id)
    const text = said("text") || said("refusal")
    if (!text && !said("reasoning")) return
    Object.assign(message(body, event), { text, reasoning: said("reasoning"), isFinished: true, isInterrupted: event.message.interrupted })
  },
  "tool.called"(body, event) {
    Object.assign(tool(body, event), { name: event.name, args: event.arguments })
  },
  "tool.arguments.delta"(body, event) {
    const call = tool(body, event)
    call.args += event.fragment
    call.name ||= event.name
  },
  "tool.started"(body, event) {
    Object.assign(tool(body, event), { status: "running", started_at: event.at })
    body.begin(event, "tool", event.call_id)
  },
  "tool.progress"(body, event) {
    const call = tool(body, event)
    call.output = (call.output + event.text).slice(-2 * LONGEST_OUTPUT)
  },
  "tool.finished"(body, event) {
    const { name: title, outcome, result, elapsed } = event
    Object.assign(tool(body, event), { name: title, status: "finished", outcome, result, elapsed })
    body.finish(event, event.call_id)
  },
  handoff(body, event) {
    body.note(event, name(event.from_agent), " hands over to ", name(event.to_agent))
  },
  "compaction.finished"(body, event) {
    if (event.outcome === "ok") body.note(event, `Older messages were shortened: ${event.tokens_before} → ${event.tokens_after} tokens.`)
  },
  "input.requested"(body, event) {
    body.begin(event, "waits", event.request_id)
    const question = body.block(`q ${event.request_id}`, () => new Question(body, event), event)
    announce(`A question waits for your answer: ${question.title}`, true)
  },
  "input.received"(body, event) {
    body.finish(event, event.request_id)
    const question = body.block(`q ${event.request_id}`, () => new Question(body, event), event)
    Object.assign(question, { outcome: event.outcome, answer: event.answer })
  },
}

function ended(body, event) {
  Object.assign(body.state(event), { status: event.type.slice(4), ended_at: event.at, cancelling: null })
  if (event.run_id !== body.run.id) body.note(event, name(body.state(event).name), ` ${WORDS[event.type.slice(4)]}${event.error ? `: ${event.error.message}` : ""}`)
}

// --- blocks ----------------------------------------------------------------------------------------------------

class Said {
  text = ""
  reasoning = ""
  isFinished = false
  isInterrupted = false
  #markdown = new Markdown()
  #thought = null

  constructor() {
    this.node = el("article.said", {}, this.#markdown.node)
  }

  draw() {
    this.#markdown.set(this.text, this.isFinished)
    this.node.toggleAttribute("data-streams", !this.isFinished)
    this.node.toggleAttribute("data-interrupted", this.isInterrupted)
    if (this.reasoning) {
      if (!this.#thought) {
        this.#thought = el("p", { dir: "auto" })
        this.node.prepend(el("details.thought", {}, el("summary", {}, "Reasoning"), this.#thought))
      }
      say(this.#thought, this.reasoning)
    }
  }
}

const OUTCOMES = { ok: "done", error: "failed", cancelled: "stopped", abandoned: "abandoned", denied: "not allowed" }

class Tool {
  args = ""
  status = "called"
  output = ""
  outcome = null
  result = null
  elapsed = null
  process = ""
  #parts = new Map()

  constructor({ name: title = "" }) {
    this.name = title
    this.title = el("strong")
    this.preview = el("code.preview")
    this.state = el("span.state")
    this.parts = el("div")
    this.node = el("details.tool", {}, el("summary", {}, this.title, " ", this.preview, this.state), this.parts)
  }

  draw() {
    this.node.dataset.status = this.outcome ?? this.status
    fill(this.title, name(this.name || "tool"))
    say(this.preview, preview(this.args))
    const took_ = this.elapsed === null ? "" : `, ${took(this.elapsed * 1000)}`
    say(this.state, this.status === "finished" ? (OUTCOMES[this.outcome] ?? this.outcome) + took_ : this.status === "running" ? "running" + this.process : "called")
    if (this.status === "running" && this.output && !this.wasOpened) this.node.open = this.wasOpened = true
    if (this.status === "finished" || this.node.open || this.output) this.#fill()
  }

  #fill() {
    this.#part("Arguments", pretty(this.args))
    this.#part("Output", this.output.slice(-LONGEST_OUTPUT))
    const result = asText(this.result)
    if (result !== this.output) this.#part("Result", result.slice(0, LONGEST_OUTPUT))
  }

  #part(title, text) {
    let part = this.#parts.get(title)
    if (!text && !part) return
    if (!part) {
      this.#parts.set(title, (part = pre("", `${title} of ${this.name}`)))
      put(this.parts, el("p.label", {}, title), part)
    }
    say(part.firstChild, text)
    if (title === "Output") part.scrollTop = part.scrollHeight
  }
}

export const pre = (text, label) => el("pre", { tabIndex: 0, role: "region", "aria-label": label, dir: "auto" }, el("code", {}, text))

/** The arguments in one line: a command as it is typed, the rest as JSON. */
export function preview(args) {
  try {
    const fields = JSON.parse(args)
    const command = fields.command ?? fields.program
    if (typeof command === "string") return `$ ${command}`
    return Object.entries(fields).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ").slice(0, 200)
  } catch {
    return args.slice(0, 200)
  }
}

function pretty(args) {
  try {
    return JSON.stringify(JSON.parse(args), null, 2)
  } catch {
    return args
  }
}

const ANSWERED = { answered: "Answered", expired: "Nobody answered in time: that is a no", cancelled: "Taken back: the run was stopped" }

class Question {
  outcome = null
  answer = null

  constructor(body, { request_id, kind, prompt = "", options = [], pattern, expires_at }) {
    const [before] = prompt.split(/^--- .*\n\+\+\+ /m, 1)
    const change = prompt.slice(before.length) // a diff
    this.title = before.trim()
    const isApproval = kind === "approval"
    const send = async (value) => {
      this.#sending(true)
      const isTaken = await body.app.attempt(() => body.run.answer(request_id, value))
      if (isTaken === false) body.app.toast("It was too late: the question is not open any more.", true)
      if (isTaken !== true) this.#sending(false)
      else announce("Answered.")
    }
    const labels = isApproval ? { yes: "Allow", session: "Allow for this session", always: "Always allow", no: "Do not allow" } : {}
    const buttons = options.map((option, at) =>
      el(isApproval && !at ? "button.go" : "button", { type: "button", onclick: () => send(option) }, labels[option] ?? option),
    )
    const field = el("input", { name: "answer", autocomplete: "off", "aria-label": "Your answer" })
    const form = options.length ? null : el("form.inline", { onsubmit: (event) => (event.preventDefault(), send(field.value)) }, field, el("button.go", {}, "Answer"))
    this.controls = el("div.actions", {}, buttons, form)
    this.until = el("p.quiet", {}, expires_at ? `Waits until ${moment(expires_at)}. ` : "", isApproval ? "No answer is a no." : "")
    this.node = el("section.question", { "aria-label": isApproval ? "Approval" : "Question" }, el("h2", { dir: "auto" }, this.title), change && diff(change), pattern && el("p", {}, "Can be remembered for ", el("code", {}, JSON.stringify(pattern))), this.controls, this.until)
  }

  #sending(isSending) {
    for (const control of this.controls.querySelectorAll("button, input")) control.disabled = isSending
  }

  draw() {
    if (!this.outcome) return
    this.node.dataset.outcome = this.outcome
    this.controls.remove()
    const said = this.outcome === "answered" ? `: ${asText(this.answer)}` : "."
    say(this.until, `${ANSWERED[this.outcome] ?? this.outcome}${said}`)
  }
}

/** A unified diff: each line is marked by its sign as well as by its colour. */
function diff(text) {
  const kinds = { "+": "ins", "-": "del", "@": "at" }
  const lines = text.split("\n").map((line, at) => {
    const kind = at < 2 ? "file" : kinds[line[0]]
    return el(kind === "ins" || kind === "del" ? kind : `span${kind ? `.${kind}` : ""}`, {}, `${line}\n`)
  })
  return el("pre.diff", { tabIndex: 0, role: "region", "aria-label": "The change" }, el("code", {}, lines))
}
