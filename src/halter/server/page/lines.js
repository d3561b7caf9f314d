/**
 * The page's one picture: a run is a line that is held. It goes on while the run lives, and a stop cuts it. What was
 * open at the stop hangs on the cut: the receipt.
 */
import { count, el, name, REASONS, shown, took, WORDS } from "./dom.js"

/** The line of one run on an axis from `begin` to `end` (seconds); `parts`: what it did, `{from, to, kind}`. */
export class RunLine {
  constructor() {
    this.end = el("span.end")
    this.node = el("span.line", { "aria-hidden": "true" }, el("span.string"), this.end)
    this.parts = []
  }

  /** Draws it. `at`: now. */
  set({ started_at, ended_at, status }, begin, end, parts = []) {
    const place = (at) => `${(Math.max(0, Math.min(1, (at - begin) / (end - begin || 1))) * 100).toFixed(2)}%`
    const from = started_at ?? end
    this.node.dataset.status = status
    this.node.toggleAttribute("data-before", from < begin)
    this.node.style.setProperty("--from", place(from))
    this.node.style.setProperty("--to", place(ended_at ?? end))
    while (this.parts.length > parts.length) this.parts.pop().remove()
    parts.forEach((part, at) => {
      this.parts[at] ??= this.node.insertBefore(el("span.part"), this.end)
      const { style, dataset } = this.parts[at]
      dataset.kind = part.kind
      style.setProperty("--from", place(part.from))
      style.setProperty("--to", place(part.to ?? ended_at ?? end))
    })
  }
}

const HOW = {
  closed: "closed",
  finished: "finished",
  cancelled: "cancelled",
  terminated: "ended by SIGTERM",
  killed: "killed",
  abandoned: "abandoned",
  unknown: "not found any more",
}

/** Who asked for the stop, as a sentence. */
export function whoStopped(stop) {
  const who = stop.actor ? [name(stop.actor, "strong")] : []
  const why = REASONS[stop.reason] ?? stop.reason
  const words = who.length ? [...who, ` — ${why}`] : [why[0].toUpperCase() + why.slice(1)]
  return [...words, stop.message ? [": ", el("q", { dir: "auto" }, stop.message)] : null, stop.mode && stop.mode !== "immediate" ? ` (${stop.mode})` : null]
}

/** A receipt as a timeline: each thing that was open is a thread that hangs on the cut, as long as it took to end. */
export function receipt(found, stop) {
  const longest = Math.max(1, ...found.resources.map((line) => line.ended_after_ms ?? 0), found.stopped_after_ms)
  const title = found.confirmed ? "Everything that was open has ended" : "Not everything is known to have ended"
  const head = el("header", {}, el("h2", {}, "Receipt"), el("p", {}, stop && whoStopped(stop)))
  const facts = el("p.facts", {}, el("strong", {}, took(found.stopped_after_ms)), ` from the request to the end. ${title}.`)
  const threads = found.resources.map((line) => thread(line, longest))
  const list = threads.length ? el("ol.threads", {}, threads) : el("p.quiet", {}, "Nothing was open: there was nothing to end.")
  const scale = threads.length ? el("p.scale", { "aria-hidden": "true" }, el("span", {}, "stop"), el("span", {}, took(longest))) : null
  return el(`section.receipt${found.confirmed ? "" : ".unconfirmed"}`, { "aria-label": "Receipt of the stop" }, head, facts, list, scale)
}

function thread({ kind, label, ended, ended_after_ms: after }, longest) {
  const width = `${Math.max(0.6, ((after ?? longest) / longest) * 100).toFixed(1)}%`
  const when = after === null ? "no end was seen" : took(after)
  return el(
    "li",
    { "data-ended": ended },
    el("span.what", {}, el("span.kind", {}, kind), " ", name(label)),
    el("span.thread", { style: { "--to": width }, "aria-hidden": "true" }),
    el("span.how", {}, `${HOW[ended] ?? shown(ended)}, `, el("span.ms", {}, when)),
  )
}

/** A receipt in one sentence, for ears. */
export function receiptInWords(record) {
  const { receipt: found } = record
  if (!found) return `${WORDS[record.status] ?? record.status}.`
  const left = found.resources.filter((line) => line.ended_after_ms === null).length
  const open = count(found.resources.length, "open thing")
  return `Stopped after ${took(found.stopped_after_ms)}. ${open}, ${left ? `${left} not known to have ended` : "all ended"}.`
}
