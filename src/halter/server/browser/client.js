/**
 * A client of Halter's server, for browsers and Node: start, follow, stop, answer and steer runs.
 *
 *   const halter = new Halter()
 *   const run = halter.run("poet", "Write on rivers.")
 *   for await (const event of run) if (event.type === "text.delta") show(event.text)
 *   stopButton.onclick = () => run.cancel("enough")
 *
 * 1. A start is idempotent: the client chooses the id. 2. A lost connection is resumed by cursor; each event comes
 * once. 3. After a stop or the end no stream is opened any more. 4. No dependencies.
 */

const FIRST_DELAY = 100 // milliseconds before the first attempt to resume; twice as long before each further one
const LONGEST_DELAY = 5_000
const SILENCE = 45_000 // the server pings every 15 s: a connection that is silent for longer is dead
const REMEMBER_EVERY = 250 // milliseconds between two notes of the cursor
const MERGE_FROM = 64 // events: a reader that is further behind gets neighbouring deltas as one
const TRY_AGAIN = new Set([408, 425, 429, 500, 502, 503, 504])
const DELTAS = { "text.delta": "text", "reasoning.delta": "text", "tool.progress": "text", "tool.arguments.delta": "fragment" }
const ENDS = { "run.completed": "completed", "run.failed": "failed", "run.cancelled": "cancelled" }

/** What all errors of this module are. */
export class HalterError extends Error {
  get name() {
    return this.constructor.name
  }
}

/** The server cannot be reached. */
export class ConnectionFailed extends HalterError {}

/** The server does not know the run any more. */
export class RunLost extends HalterError {}

/** The server refused a request. `status`, `code`, and `retryAfter` in seconds, or `null`. */
export class ServerRefused extends HalterError {
  constructor(message, status, code, retryAfter) {
    super(message)
    this.status = status
    this.code = code
    this.retryAfter = retryAfter
  }
}

/** Splits a stream of server-sent events into the data of its frames, whatever the pieces in which it comes. */
export class FrameSplitter {
  #rest = ""
  #decoder = new TextDecoder()

  /** The data of each frame that is complete with these bytes. */
  feed(bytes) {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true })
    const found = []
    let begin = 0
    for (let end; (end = text.indexOf("\n\n", begin)) >= 0; begin = end + 2) {
      const data = dataOf(text.slice(begin, end))
      if (data) found.push(data)
    }
    this.#rest = text.slice(begin)
    return found
  }
}

function dataOf(frame) {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"))
  return lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n")
}

const noUsage = () => ({ input: 0, output: 0, cached: 0, reasoning: 0, estimated: false })

/** Folds the events of one tree of runs, in their order, into a snapshot. It equals the server's own fold. */
export class Fold {
  #usage = noUsage()
  #runs = new Map()
  #messages = new Map()
  #tools = new Map()
  #fragments = new Map() // of arguments, by tool, until the call is complete
  #inputs = new Map()

  constructor(runId) {
    this.runId = runId
    this.seq = 0
    this.terminal = null
  }

  /** Takes events in, with rising `seq`. A snapshot replaces all that was there. */
  apply(events) {
    for (const event of events) {
      if (event.type === "snapshot") this.#load(event)
      else if (event.type !== "gap") {
        this.seq = event.seq
        this.#take(event)
      }
    }
  }

  #load(state) {
    this.seq = state.seq
    this.#usage = state.usage
    this.#runs = new Map(state.runs.map((run) => [run.run_id, { ...run }]))
    this.#messages = new Map(state.messages.map((message) => [message.message_id, { ...message }]))
    this.#tools = new Map(state.tools.map((tool) => [keyOf(tool), { ...tool, arguments: "" }]))
    this.#fragments = new Map(state.tools.map((tool) => [keyOf(tool), tool.arguments])) // more may come
    this.#inputs = new Map(state.open.inputs.map((input) => [input.request_id, input]))
  }

  #take(event) {
    switch (event.type) {
      case "text.delta":
        this.#message(event).text += event.text
        break
      case "reasoning.delta":
        this.#message(event).reasoning += event.text
        break
      case "message.finished":
        this.#finish(this.#message(event), event.message)
        break
      case "tool.called":
        Object.assign(this.#tool(event), { name: event.name, arguments: event.arguments })
        break
      case "tool.arguments.delta":
        this.#tool(event).name ||= event.name ?? ""
        this.#fragments.set(keyOf(event), (this.#fragments.get(keyOf(event)) ?? "") + event.fragment)
        break
      case "tool.started":
        Object.assign(this.#tool(event), { status: "running", started_at: event.at })
        break
      case "tool.progress":
        this.#tool(event).output += event.text
        break
      case "tool.finished":
        Object.assign(this.#tool(event), { status: "finished", outcome: event.outcome, result: event.result })
        break
      case "input.requested":
        this.#inputs.set(event.request_id, inputOf(event))
        break
      case "input.received":
        this.#inputs.delete(event.request_id)
        break
      case "usage":
        if (event.run_id === this.runId) this.#usage = event.usage
        break
      default:
        this.#takeRun(event)
    }
  }

  #takeRun(event) {
    if (event.type === "run.queued") {
      this.#run(event).session_id = event.session_id
    } else if (event.type === "run.started") {
      const { name, kind, input, model, session_id, at } = event
      Object.assign(this.#run(event), { name, kind, input, model, session_id, started_at: at, status: "running" })
    } else if (event.type === "run.cancelling") {
      const { reason, mode, actor, message, at } = event
      Object.assign(this.#run(event), { status: "cancelling", cancelling: { reason, mode, actor, message, at } })
    } else if (event.type in ENDS) {
      const status = ENDS[event.type]
      Object.assign(this.#run(event), { status, ended_at: event.at, cancelling: null, error: event.error ?? null })
      if (event.run_id === this.runId) {
        this.#usage = event.usage
        this.terminal = event
      }
    }
  }

  #run(event) {
    return found(this.#runs, event.run_id, () => ({
      run_id: event.run_id, parent_id: event.parent_id, name: "", kind: "", status: "queued", input: null, model: null,
      session_id: null, started_at: null, ended_at: null, error: null, cancelling: null,
    }))
  }

  #message(event) {
    return found(this.#messages, event.message_id, () => ({
      message_id: event.message_id, run_id: event.run_id, agent: event.agent, task: event.task, role: "assistant",
      text: "", reasoning: "", finished: false, interrupted: false,
    }))
  }

  #finish(state, message) {
    const said = (type) => message.parts.filter((part) => part.type === type).map((part) => part.text).join("")
    const { role, interrupted } = message
    Object.assign(state, { role, interrupted, finished: true, text: said("text"), reasoning: said("reasoning") })
  }

  #tool(event) {
    return found(this.#tools, keyOf(event), () => ({
      call_id: event.call_id, run_id: event.run_id, agent: event.agent, task: event.task, name: event.name ?? "",
      arguments: "", status: "called", output: "", outcome: null, result: null, started_at: null,
    }))
  }

  /** Where the root is; `waiting` while a question of the tree is open. */
  get status() {
    const status = this.#runs.get(this.runId)?.status ?? "queued"
    return status === "running" && this.#inputs.size ? "waiting" : status
  }

  /** The stop of the root that is under way, or `null`. */
  get cancelling() {
    return this.#runs.get(this.runId)?.cancelling ?? null
  }

  /** The state now: plain data, with the fields of the server's `snapshot` frame. */
  snapshot() {
    const tools = [...this.#tools.entries()].map(([key, tool]) => ({
      ...tool, arguments: tool.arguments || (this.#fragments.get(key) ?? ""),
    }))
    return {
      seq: this.seq,
      run_id: this.runId,
      status: this.status,
      cancelling: this.cancelling,
      usage: this.#usage,
      runs: [...this.#runs.values()].map((run) => ({ ...run })),
      messages: [...this.#messages.values()].map((message) => ({ ...message })),
      tools,
      open: {
        tools: tools.filter((tool) => tool.status !== "finished").map((tool) => tool.call_id),
        inputs: [...this.#inputs.values()],
      },
    }
  }
}

const keyOf = (tool) => `${tool.run_id} ${tool.call_id}` // ids of runs have no spaces

function found(all, key, make) {
  let one = all.get(key)
  if (one === undefined) all.set(key, (one = make()))
  return one
}

const INPUT = "request_id run_id kind prompt schema options call_id expires_at pattern".split(" ")
const inputOf = (event) => Object.fromEntries(INPUT.map((name) => [name, event[name]]))

/** One reader's way through the events of a run. Where it is behind, neighbouring deltas come as one. */
class Queue {
  #events = []
  #wake = () => {}
  #isOver = false
  #error = null

  push(event) {
    const last = this.#events.at(-1)
    const field = DELTAS[event.type]
    if (field && this.#events.length >= MERGE_FROM && isSameStream(last, event)) {
      this.#events[this.#events.length - 1] = { ...event, first_seq: last.first_seq, [field]: last[field] + event[field] }
    } else this.#events.push(event)
    this.#wake()
  }

  end(error = null) {
    this.#isOver = true
    this.#error = error
    this.#wake()
  }

  /** All events that are there, at least one; `null` at the end. */
  async next() {
    while (!this.#events.length) {
      if (this.#error) throw this.#error
      if (this.#isOver) return null
      await new Promise((resolve) => (this.#wake = resolve))
    }
    const all = this.#events
    this.#events = []
    return all
  }
}

function isSameStream(one, other) {
  if (one.type !== other.type || one.run_id !== other.run_id || one.data != null || other.data != null) return false
  return one.message_id === other.message_id && one.call_id === other.call_id
}

/** One run on the server. It starts when you first iterate it or ask for its end. */
export class Run {
  #client
  #start // the body of the start; `null` for a run that was started elsewhere
  #from // where a run that was started elsewhere is read from: a cursor, "start", or `null`: a snapshot, then live
  #memory // where id and cursor are noted
  #fold
  #queues = new Set()
  #over = deferred()
  #epoch = null
  #isFollowing = false
  #isStopped = false
  #isClosed = false
  #connection = null
  #heardAt = 0
  #stop = null // the first request to stop that was seen
  #lost = null
  #delivered = null // the newest event that a loop has got

  constructor(client, id, { start = null, from = null, memory = null } = {}) {
    this.#client = client
    this.#start = start
    this.#from = from
    this.#memory = memory
    this.#fold = new Fold(id)
    this.#over.promise.catch(() => {}) // nobody has to ask
    /** The run's id. */
    this.id = id
    /** How the run ended: `{id, status, text, output, usage, error, cancellation, receipt}`; `null` until then. */
    this.outcome = null
    /** The stretches of events that the server has lost: `{from, to}`. */
    this.gaps = []
  }

  /** Where the run is, as far as is known. */
  get status() {
    return this.outcome?.status ?? this.#fold.status
  }

  /** The newest event that your loop has got: what to resume with; `null` before the first frame. */
  get cursor() {
    return this.#epoch === null ? null : `${this.#epoch}.${this.#delivered ?? this.#fold.seq}`
  }

  /** The state of the whole tree of runs: messages, tools, open questions. */
  snapshot() {
    return this.#fold.snapshot()
  }

  /** Each event once. A reader that comes later, or that has a gap before it, gets a `snapshot` first. */
  async *[Symbol.asyncIterator]() {
    for await (const batch of this.#read()) {
      for (const event of batch) {
        this.#deliver(event)
        yield event
      }
    }
  }

  /** The events as they come together: for pages that draw once for several. */
  async *batches() {
    for await (const batch of this.#read()) {
      this.#deliver(batch.at(-1))
      yield batch
    }
  }

  #deliver({ seq = this.#delivered }) {
    this.#delivered = seq
    this.#memory?.noteSoon(() => this.#resumeAt)
  }

  async *#read() {
    const queue = new Queue()
    if (this.#fold.seq > 0) queue.push({ type: "snapshot", cursor: this.#place, ...this.snapshot() })
    if (this.outcome) queue.end()
    else if (this.#lost) queue.end(this.#lost)
    this.#queues.add(queue)
    this.#follow()
    try {
      for (let batch; (batch = await queue.next()) !== null; ) yield batch
    } finally {
      this.#queues.delete(queue)
    }
  }

  /** The text of the run's own answer, in pieces. */
  async *text() {
    for await (const event of this) if (event.type === "text.delta" && event.run_id === this.id) yield event.text
  }

  /** Waits for the end. Rejects if nothing more can be known of the run. */
  finished() {
    this.#follow()
    return this.#over.promise
  }

  /**
   * Stops the run: sent until the server answers, also if it overtakes the start.
   * `wait`: seconds to wait for the end. Resolves to the run's record; with its `receipt`, if it is over.
   */
  async cancel(message, { mode, reason, wait = 5 } = {}) {
    this.#isStopped = true
    if (this.#start && !this.#isFollowing) return this.#end({ id: this.id, status: "cancelled" })
    const body = { ...(message && { message }), ...(mode && { mode }), ...(reason && { reason }) }
    const tombstone = this.#start && this.#epoch === null ? "&tombstone=1" : ""
    const path = `${this.#path}/cancel?wait=${wait}${tombstone}`
    const record = await this.#client.insist("POST", path, body)
    if (isFinal(record.status)) {
      await Promise.race([this.#over.promise.catch(() => {}), pause(500)]) // the stream tells more, as a rule
      if (!this.outcome) this.#endFrom(record)
    }
    return record
  }

  /** Answers an `input.requested`. Resolves to `false` if no such question is open. */
  answer(requestId, answer) {
    return this.#accepted("input", { request_id: requestId, answer })
  }

  /** Steers the run: the text is delivered at its next turn. Resolves to `false` if the run is over. */
  send(text) {
    return this.#accepted("messages", { text })
  }

  /** Reads no more. A run whose last client has gone is stopped `linger` seconds later, unless it is detached. */
  close() {
    this.#isClosed = true
    this.#connection?.abort()
    this.#memory?.note(this.#resumeAt)
    for (const queue of this.#queues) queue.end()
  }

  get #place() {
    return this.#epoch === null ? null : `${this.#epoch}.${this.#fold.seq}`
  }

  get #resumeAt() {
    return this.cursor ?? (this.#from === "start" ? null : this.#from)
  }

  get #path() {
    return `/v1/runs/${encodeURIComponent(this.id)}`
  }

  async #accepted(what, body) {
    try {
      await this.#client.request("POST", `${this.#path}/${what}`, body)
      return true
    } catch (error) {
      if (error.status === 409) return false
      throw error
    }
  }

  // --- following ---------------------------------------------------------------------------------------------

  async #follow() {
    if (this.#isFollowing || this.#isClosed || this.outcome) return
    this.#isFollowing = true
    this.#heardAt = Date.now()
    this.#memory?.note(this.#resumeAt)
    for (let delay = FIRST_DELAY; !this.outcome && !this.#isClosed; ) {
      const before = this.#heardAt
      try {
        // After a stop only the record is asked for: no stream is opened, and nothing can start.
        await (this.#isStopped ? this.#askForEnd() : this.#connect())
        continue
      } catch (error) {
        if (this.outcome || this.#isClosed) return
        if (!this.#mayTryAgain(error)) return this.#fail(error)
        delay = this.#heardAt > before ? FIRST_DELAY : Math.min(delay * 2, LONGEST_DELAY)
        await pause(error.retryAfter ? Math.min(error.retryAfter * 1000, LONGEST_DELAY) : delay)
      }
    }
  }

  #mayTryAgain(error) {
    if (Date.now() - this.#heardAt > this.#client.patience * 1000) return false
    if (error instanceof ConnectionFailed) return true
    // A start that is refused was the caller's mistake, or the server is full: say so at once.
    return error instanceof ServerRefused && TRY_AGAIN.has(error.status) && (this.#epoch !== null || !this.#start)
  }

  async #connect() {
    const controller = (this.#connection = new AbortController())
    const isStart = this.#start && this.#epoch === null
    const cursor = this.#place ?? (this.#from === "start" ? "0" : this.#from)
    const response = isStart
      ? await this.#client.open("POST", "/v1/runs", { body: this.#start, signal: controller.signal })
      : await this.#client.open("GET", `${this.#path}/events`, { cursor, signal: controller.signal })
    if (response.status === 204) return this.#endFrom(await this.#client.request("GET", this.#path))
    for await (const found of framesOf(response, controller)) {
      this.#heardAt = Date.now()
      for (const data of found) this.#take(JSON.parse(data))
      if (this.outcome) return controller.abort()
    }
    throw new ConnectionFailed("the event stream ended before the run did")
  }

  async #askForEnd() {
    try {
      const record = await this.#client.request("GET", this.#path)
      this.#heardAt = Date.now()
      if (isFinal(record.status)) this.#endFrom(record)
      else await pause(500)
    } catch (error) {
      if (error.status !== 404) throw error
      this.#end({ id: this.id, status: "cancelled" }) // the stop came before the start
    }
  }

  #take(event) {
    if (event.type === "gap") {
      this.gaps.push({ from: event.from, to: event.to })
      this.#publish(event)
      this.#epoch = null // the next snapshot counts
    } else if (event.type === "snapshot") {
      const isNews = this.#epoch === null && event.seq > 0
      this.#epoch = event.cursor.split(".")[0]
      if (isNews) this.#publish(event)
    } else if (event.seq > this.#fold.seq || (event.type in ENDS && event.run_id === this.id)) {
      this.#stop ??= this.#fold.cancelling
      this.#publish(event)
      if (event.type in ENDS && event.run_id === this.id) this.#end(this.#outcomeOf(event))
    }
  }

  #publish(event) {
    this.#fold.apply([event])
    for (const queue of this.#queues) queue.push(event)
  }

  #outcomeOf(event) {
    const { text, usage, output = null, error = null, receipt = null } = event
    const { actor = null, message = null } = this.#stop ?? {}
    const cancellation = receipt && { reason: event.reason, mode: event.mode, actor, message, at: receipt.requested_at }
    return { id: this.id, status: ENDS[event.type], text, output, usage, error, cancellation, receipt }
  }

  #endFrom(record) {
    const { text, usage, output, error, cancellation, receipt, ended_at: at } = record
    const event = { type: `run.${record.status}`, seq: this.#fold.seq, run_id: this.id, parent_id: null, root_id: this.id }
    const ending = { output, error: error ?? undefined, receipt, reason: cancellation?.reason, mode: cancellation?.mode }
    if (this.#epoch === null) this.#epoch = record.cursor?.split(".")[0] ?? null
    this.#publish({ ...event, at, text, usage, ...ending })
    return this.#end({ id: this.id, status: record.status, text, output, usage, error, cancellation, receipt })
  }

  #end(outcome) {
    if (this.outcome) return this.outcome
    const nothing = { text: "", output: null, usage: noUsage(), error: null, cancellation: null, receipt: null }
    this.outcome = { ...nothing, ...outcome }
    this.#memory?.forget()
    this.#over.resolve(this.outcome)
    for (const queue of this.#queues) queue.end()
    return this.outcome
  }

  #fail(error) {
    const isUnknown = error.status === 404 && (this.#epoch !== null || !this.#start)
    this.#lost = isUnknown ? new RunLost(`the server does not know run ${this.id}`, { cause: error }) : error
    if (isUnknown) this.#memory?.forget()
    this.#over.reject(this.#lost)
    for (const queue of this.#queues) queue.end(this.#lost)
  }
}

const isFinal = (status) => Object.values(ENDS).includes(status)

function deferred() {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

/** Waits; a browser that is online again does not wait any longer. */
function pause(milliseconds) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      globalThis.removeEventListener?.("online", done)
      resolve()
    }
    const timer = setTimeout(done, milliseconds)
    globalThis.addEventListener?.("online", done)
  })
}

/** The data of frames as they come; a silent or broken connection throws `ConnectionFailed`. */
async function* framesOf(response, controller) {
  const splitter = new FrameSplitter()
  const reader = response.body.getReader()
  try {
    while (true) {
      const timer = setTimeout(() => controller.abort(), SILENCE)
      let piece
      try {
        piece = await reader.read()
      } catch (error) {
        throw new ConnectionFailed("the connection was lost", { cause: error })
      } finally {
        clearTimeout(timer)
      }
      if (piece.done) return
      yield splitter.feed(piece.value)
    }
  } finally {
    reader.cancel().catch(() => {})
  }
}

/** Where a page notes its run, so that it finds it again after a reload. */
class Memory {
  #storage
  #key
  #id
  #timer = null

  constructor(storage, name, id) {
    this.#storage = storage
    this.#key = `halter.run.${name}`
    this.#id = id
  }

  note(cursor) {
    try {
      this.#storage.setItem(this.#key, JSON.stringify({ id: this.#id, cursor }))
    } catch {
      // a full or forbidden storage: then a reload does not find the run
    }
  }

  noteSoon(cursor) {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      this.note(cursor())
    }, REMEMBER_EVERY)
  }

  forget() {
    clearTimeout(this.#timer)
    this.#timer = 0 // nothing is noted any more
    const noted = this.read()
    if (noted?.id === this.#id) this.#storage.removeItem(this.#key)
  }

  read() {
    try {
      return JSON.parse(this.#storage.getItem(this.#key))
    } catch {
      return null
    }
  }
}

/**
 * A server.
 *
 * `url`: where it is; by default where this module came from. `key`: an API key, if it wants one. `linger`: seconds
 * for which a run lives on without its client, so that a reload is no stop. `patience`: seconds without any connection
 * until a run is given up. `storage`: where a remembered run is noted; by default `sessionStorage`.
 */
export class Halter {
  constructor({ url, key = null, linger = 30, patience = 60, storage = sessionStorageOrNull() } = {}) {
    const own = import.meta.url?.startsWith("http") ? new URL(".", import.meta.url).href : ""
    this.url = (url ?? own).replace(/\/+$/, "")
    this.key = key
    this.linger = linger
    this.patience = patience
    this.storage = storage
  }

  /**
   * A run that starts when you first iterate it or ask for its end. `options`: the fields of the body of
   * `POST /v1/runs` (`session`, `user`, `tags`, `timeout`, `budget`, `on_busy`, …), and `remember`: a name under
   * which `resume` finds the run after a reload of the page.
   */
  run(agent, input, { remember, id = newId(), ...options } = {}) {
    const start = { agent, input, id, stream: true, on_disconnect: "cancel", linger: this.linger, ...options }
    return new Run(this, id, { start, memory: this.#memory(remember, id) })
  }

  /** A run that was started elsewhere. `from`: a cursor, `"start"`, or nothing: a snapshot first, then what follows. */
  find(id, { from = null, remember } = {}) {
    return new Run(this, id, { from, memory: this.#memory(remember, id) })
  }

  /** The run that this tab was following under the name `remember` before it was reloaded, or `null`. */
  resume(remember, { from = null } = {}) {
    const noted = this.#memory(remember, null)?.read()
    if (!noted?.id) return null
    return this.find(noted.id, { from: from === "cursor" ? noted.cursor : from, remember })
  }

  #memory(name, id) {
    return name && this.storage ? new Memory(this.storage, name, id) : null
  }

  /** What can be started. */
  async agents() {
    return (await this.request("GET", "/v1/agents")).agents
  }

  /** The record of a run. */
  get(id) {
    return this.request("GET", `/v1/runs/${encodeURIComponent(id)}`)
  }

  /** One page of records, the newest first: `{runs, next}`. `filter`: the parameters of `GET /v1/runs`. */
  runs(filter = {}) {
    return this.request("GET", `/v1/runs${queryOf(filter)}`)
  }

  /** Stops all live runs that fit `{session, tag, agent, status}` or `{all: true}`; resolves to their records. */
  async cancelAll({ wait = 5, ...body }) {
    return (await this.request("POST", `/v1/cancel?wait=${wait}`, body)).runs
  }

  /** The frames of an event stream of the API, as they come together; it ends when the connection does. */
  async *frames(path, controller = new AbortController()) {
    const response = await this.open("GET", path, { signal: controller.signal })
    for await (const found of framesOf(response, controller)) yield found.map((data) => JSON.parse(data))
  }

  /** Any request of the API; resolves to its JSON, or `null`. Throws `ServerRefused` or `ConnectionFailed`. */
  async request(method, path, body) {
    const response = await this.open(method, path, { body, accept: "application/json" })
    try {
      return response.status === 204 ? null : await response.json()
    } catch (error) {
      throw new ConnectionFailed("the answer was cut off", { cause: error })
    }
  }

  /** As `request`, sent again until the server answers, for `patience` seconds: only for what may be repeated. */
  async insist(method, path, body) {
    const until = Date.now() + this.patience * 1000
    for (let delay = FIRST_DELAY; ; delay = Math.min(delay * 2, LONGEST_DELAY)) {
      try {
        return await this.request(method, path, body)
      } catch (error) {
        const isLost = error instanceof ConnectionFailed || TRY_AGAIN.has(error.status)
        if (!isLost || Date.now() > until) throw error
        await pause(delay)
      }
    }
  }

  /** An answer whose body is still to be read. */
  async open(method, path, { body, cursor, signal, accept = "text/event-stream" } = {}) {
    const headers = { Accept: accept }
    if (body !== undefined) headers["Content-Type"] = "application/json"
    if (this.key) headers.Authorization = `Bearer ${this.key}`
    if (cursor) headers["Last-Event-ID"] = cursor
    let response
    try {
      const sent = body === undefined ? undefined : JSON.stringify(body)
      response = await fetch(this.url + path, { method, headers, body: sent, signal, cache: "no-store" })
    } catch (error) {
      throw new ConnectionFailed(`cannot reach ${this.url || "the server"}`, { cause: error })
    }
    if (!response.ok) throw await refusalOf(response)
    return response
  }
}

async function refusalOf(response) {
  const problem = await response.json().catch(() => ({}))
  const after = Number(response.headers.get("retry-after"))
  const message = problem.detail ?? `the server answered ${response.status}`
  return new ServerRefused(message, response.status, problem.code ?? "unknown", after || null)
}

/** The parameters that are given, as the query of a URL. */
export function queryOf(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "")
  return given.length ? `?${new URLSearchParams(given)}` : ""
}

function newId() {
  // `randomUUID` is there in secure contexts alone: a page at http://192.168.… has none.
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return crypto.randomUUID?.() ?? [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")
}

function sessionStorageOrNull() {
  try {
    return globalThis.sessionStorage ?? null
  } catch {
    return null // a page that may not store anything
  }
}
