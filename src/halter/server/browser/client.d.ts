/** Types of `client.js`: a client of Halter's server. */

export type Status = "queued" | "running" | "waiting" | "cancelling" | "completed" | "failed" | "cancelled"
export type Mode = "after_turn" | "drain_tools" | "immediate" | "kill"
export type Reason = "user_stop" | "superseded" | "admin" | "policy"

/** Tokens. `estimated`: part of it is the server's own count, after a stop. */
export interface Usage {
  input: number
  output: number
  cached: number
  reasoning: number
  estimated: boolean
}

export interface Failure {
  type: string
  message: string
  retryable: boolean
}

/** Who asked for the stop, and why. `at`: seconds since the epoch. */
export interface Cancellation {
  reason: string
  mode: Mode
  actor: string | null
  message: string | null
  at: number
}

/** One thing that was open at the stop. `ended_after_ms`: `null` if it was abandoned. */
export interface ReceiptLine {
  kind: string
  label: string
  run_id: string
  ended: "closed" | "finished" | "cancelled" | "terminated" | "killed" | "abandoned" | "unknown"
  ended_after_ms: number | null
}

export interface Receipt {
  requested_at: number
  stopped_after_ms: number
  confirmed: boolean
  resources: ReceiptLine[]
}

export interface RunState {
  run_id: string
  parent_id: string | null
  name: string
  kind: string
  status: Status
  input: unknown
  model: string | null
  session_id: string | null
  started_at: number | null
  ended_at: number | null
  error: Failure | null
  cancelling: Cancellation | null
}

export interface MessageState {
  message_id: string
  run_id: string
  agent: string | null
  task: string | null
  role: string
  text: string
  reasoning: string
  finished: boolean
  interrupted: boolean
}

export interface ToolState {
  call_id: string
  run_id: string
  agent: string | null
  task: string | null
  name: string
  arguments: string
  status: "called" | "running" | "finished"
  output: string
  outcome: "ok" | "error" | "cancelled" | "abandoned" | "denied" | null
  result: unknown
  started_at: number | null
}

/** A question that waits for its answer. `expires_at`: seconds since the epoch. `pattern`: the calls for which an approval is remembered. */
export interface InputState {
  request_id: string
  run_id: string
  kind: string
  prompt: string
  schema: unknown
  options: string[]
  call_id: string | null
  expires_at: number | null
  pattern: Record<string, unknown> | null
}

/** The state of a tree of runs after the event `seq`. */
export interface Snapshot {
  seq: number
  run_id: string
  status: Status
  cancelling: Cancellation | null
  usage: Usage
  runs: RunState[]
  messages: MessageState[]
  tools: ToolState[]
  open: { tools: string[]; inputs: InputState[] }
}

/** What all events of a run carry. `at`: seconds since the epoch. */
interface Base<T extends string> {
  type: T
  seq: number
  run_id: string
  parent_id: string | null
  root_id: string
  at: number
}

interface Said<T extends string> extends Base<T> {
  agent: string | null
  task: string | null
}

interface Delta<T extends string> extends Said<T> {
  first_seq: number
}

export type Event =
  | ({ type: "snapshot"; cursor: string } & Snapshot)
  | { type: "gap"; from: number; to: number | null }
  | (Base<"run.queued"> & { session_id: string | null })
  | (Base<"run.started"> & {
      name: string
      kind: string
      input: unknown
      session_id: string | null
      tags: string[]
      model: string | null
      timeout: number | null
      schema: number
    })
  | (Base<"run.cancelling"> & Omit<Cancellation, "at"> & { after_seq: number })
  | (Base<"run.completed"> & { output: unknown; text: string; usage: Usage })
  | (Base<"run.failed"> & { error: Failure; text: string; usage: Usage })
  | (Base<"run.cancelled"> & { reason: string; mode: Mode; text: string; usage: Usage; receipt: Receipt })
  | (Said<"step.started"> & { step: number })
  | (Said<"step.finished"> & { step: number; interrupted: boolean })
  | (Said<"model.requested"> & { model: string; attempt: number; request_id: string; message_id: string })
  | (Said<"model.retry"> & { attempt: number; delay: number; cause: Failure })
  | (Delta<"text.delta"> & { text: string; message_id: string })
  | (Delta<"reasoning.delta"> & { text: string; message_id: string })
  | (Said<"message.finished"> & { message: { role: string; parts: unknown[]; interrupted: boolean }; message_id: string })
  | (Said<"usage"> & { usage: Usage })
  | (Said<"tool.called"> & { call_id: string; name: string; arguments: string })
  | (Delta<"tool.arguments.delta"> & { call_id: string; fragment: string; name: string })
  | (Said<"tool.started"> & { call_id: string })
  | (Delta<"tool.progress"> & { call_id: string; text: string; data: unknown })
  | (Said<"tool.finished"> & {
      call_id: string
      name: string
      outcome: Exclude<ToolState["outcome"], null>
      result: unknown
      elapsed: number
    })
  | (Said<"tool.late"> & { call_id: string; name: string; outcome: "ok" | "error"; result: unknown; elapsed: number })
  | (Said<"handoff"> & { from_agent: string; to_agent: string })
  | (Said<"compaction.started"> & { reason: "threshold" | "overflow"; tokens: number; messages: number })
  | (Said<"compaction.finished"> & {
      outcome: "ok" | "failed" | "cancelled"
      tokens_before: number
      tokens_after: number | null
      upto: number | null
      trimmed: number
      summary: string | null
      error: Failure | null
    })
  | (Said<"input.requested"> & InputState)
  | (Said<"input.received"> & { request_id: string; outcome: "answered" | "expired" | "cancelled"; answer: unknown; reason: string | null; by: string | null })
  | (Said<"custom"> & { name: string; data: unknown })

/** How a run ended. */
export interface Outcome {
  id: string
  status: "completed" | "failed" | "cancelled"
  text: string
  output: unknown
  usage: Usage
  error: Failure | null
  cancellation: Cancellation | null
  receipt: Receipt | null
}

/** The record of a run, as `GET /v1/runs/{id}` answers it. Times are seconds since the epoch, `cost` is US dollars. */
export interface Record extends Omit<Outcome, "status"> {
  status: Status
  epoch: number
  agent: string
  kind: string
  session: string | null
  user: string | null
  tags: string[]
  cost: number | null
  cancelling: Cancellation | null
  children: { id: string; parent_id: string | null; name: string; kind: string; status: Status }[]
  inputs: Omit<InputState, "schema">[]
  cursor: string
  created_at: number
  started_at: number | null
  ended_at: number | null
  effective: boolean | null
}

export class HalterError extends Error {}
/** The server cannot be reached. */
export class ConnectionFailed extends HalterError {}
/** The server does not know the run any more. */
export class RunLost extends HalterError {}
/** The server refused a request. `retryAfter`: seconds. */
export class ServerRefused extends HalterError {
  readonly status: number
  readonly code: string
  readonly retryAfter: number | null
}

/** Splits a stream of server-sent events into the data of its frames. */
export class FrameSplitter {
  feed(bytes: Uint8Array): string[]
}

/** Folds the events of one tree of runs, in their order, into a snapshot. */
export class Fold {
  constructor(runId: string)
  readonly runId: string
  readonly seq: number
  readonly terminal: Event | null
  readonly status: Status
  readonly cancelling: Cancellation | null
  apply(events: Iterable<Event>): void
  snapshot(): Snapshot
}

export interface RunOptions {
  id?: string
  session?: string
  user?: string
  tags?: string[]
  /** Seconds until the run is stopped. */
  timeout?: number
  budget?: { tokens?: number; cost_usd?: number; model_calls?: number; tool_calls?: number }
  keep?: "partial" | "rollback"
  on_busy?: "reject" | "enqueue" | "interrupt" | "steer"
  on_disconnect?: "cancel" | "detach"
  /** Seconds for which the run lives on without its client. */
  linger?: number
  /** A name under which `Halter.resume` finds the run after a reload of the page. */
  remember?: string
}

/** One run on the server. It starts when you first iterate it or ask for its end. */
export class Run implements AsyncIterable<Event> {
  readonly id: string
  readonly status: Status
  /** The newest event that your loop has got: what to resume with; `null` before the first frame. */
  readonly cursor: string | null
  /** How the run ended; `null` until then. */
  readonly outcome: Outcome | null
  /** The stretches of events that the server has lost. */
  readonly gaps: { from: number; to: number | null }[]
  snapshot(): Snapshot
  /** Each event once. A reader that comes later gets a `snapshot` first. */
  [Symbol.asyncIterator](): AsyncGenerator<Event, void, void>
  /** The events as they come together. */
  batches(): AsyncGenerator<Event[], void, void>
  /** The text of the run's own answer, in pieces. */
  text(): AsyncGenerator<string, void, void>
  /** Waits for the end. Rejects if nothing more can be known of the run. */
  finished(): Promise<Outcome>
  /** Stops the run; `wait`: seconds to wait for its end. Resolves to its record, with the receipt if it is over. */
  cancel(
    message?: string,
    options?: { mode?: Mode; reason?: Reason; wait?: number },
  ): Promise<Record | Outcome | { id: string; status: "tombstone" }>
  /** Answers an `input.requested`. Resolves to `false` if no such question is open. */
  answer(requestId: string, answer: unknown): Promise<boolean>
  /** Steers the run. Resolves to `false` if the run is over. */
  send(text: string): Promise<boolean>
  /** Reads no more. It does not stop the run, but the server may, `linger` seconds later. */
  close(): void
}

export interface HalterOptions {
  /** Where the server is; by default where this module came from. */
  url?: string
  /** An API key, if the server wants one. */
  key?: string | null
  /** Seconds for which a run lives on without its client: 30 by default. */
  linger?: number
  /** Seconds without any connection until a run is given up: 60 by default. */
  patience?: number
  /** Where a remembered run is noted; by default `sessionStorage`. */
  storage?: Pick<Storage, "getItem" | "setItem" | "removeItem"> | null
}

/** A server. */
export class Halter {
  constructor(options?: HalterOptions)
  url: string
  key: string | null
  linger: number
  patience: number
  run(agent: string, input?: unknown, options?: RunOptions): Run
  /** A run that was started elsewhere. `from`: a cursor, `"start"`, or nothing: a snapshot, then what follows. */
  find(id: string, options?: { from?: string | null; remember?: string }): Run
  /** The run that this tab was following before it was reloaded, or `null`. */
  resume(remember: string, options?: { from?: "cursor" | "start" | null }): Run | null
  agents(): Promise<{ name: string; kind: string; description: string; model: string | null }[]>
  get(id: string): Promise<Record>
  runs(filter?: {
    session?: string
    user?: string
    status?: Status
    tag?: string
    agent?: string
    before?: string
    limit?: number
  }): Promise<{ runs: Record[]; next: string | null }>
  cancelAll(which: {
    session?: string
    tag?: string
    agent?: string
    status?: Status
    all?: boolean
    message?: string
    mode?: Mode
    reason?: Reason
    wait?: number
  }): Promise<Record[]>
  /** The frames of an event stream of the API, such as `/v1/live`, as they come together. */
  frames(path: string, controller?: AbortController): AsyncGenerator<any[], void, void>
  /** Any request of the API; resolves to its JSON, or `null`. */
  request(method: string, path: string, body?: unknown): Promise<any>
  /** As `request`, sent again until the server answers: only for what may be repeated. */
  insist(method: string, path: string, body?: unknown): Promise<any>
  /** An answer whose body is still to be read. */
  open(
    method: string,
    path: string,
    options?: { body?: unknown; cursor?: string | null; signal?: AbortSignal; accept?: string },
  ): Promise<Response>
}

/** The parameters that are given, as the query of a URL. */
export function queryOf(parameters: { [name: string]: unknown }): string
