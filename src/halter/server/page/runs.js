/** Runs, live and past, with filters. */
import { el, empty, moment, money, name, short, took, whole, WORDS } from "./dom.js"
import { filter, listing } from "./listing.js"

const PAGE = 50
const FILTERS = [["Agent", "agent"], ["Tag", "tag"], ["Session", "session"], ["User", "user"]]

export function open(app, place, id, query) {
  return listing(app, place, {
    title: "Runs",
    path: "runs",
    filters: [filter("Status", "status", query, [["", "any"], ...Object.entries(WORDS)]), FILTERS.map(([label, key]) => filter(label, key, query))],
    go: "Filter",
    table: ["Agent", "Status", "Began", "Took", "Tokens", "Cost", "Text"],
    what: ["run"],
    async load(values, before) {
      const { runs, next } = await app.halter.runs({ ...values, before, limit: PAGE })
      return { rows: runs.map(row), next }
    },
    nothing: (isFiltered) =>
      isFiltered ? empty("No run fits", "Take a filter away.") : empty("No runs yet", "Each run that was started is listed here. ", el("a", { href: "#/chat" }, "Start one"), "."),
  })
}

function row(run) {
  const began = run.started_at ?? run.created_at
  const words = run.receipt ? `${WORDS[run.status]} in ${took(run.receipt.stopped_after_ms)}` : WORDS[run.status]
  const title = el("a", { href: `#/run/${encodeURIComponent(run.id)}` }, name(run.agent), " ", el("small", {}, short(run.id)))
  const cells = [
    el("td", {}, el("span.state", {}, words)),
    el("td", {}, moment(began)),
    el("td", {}, run.ended_at ? took((run.ended_at - began) * 1000) : "—"),
    el("td.number", {}, whole(run.usage.output)),
    el("td.number", {}, run.ended_at ? money(run.cost) : "—"),
    el("td.text", { dir: "auto" }, (run.error ? run.error.message : run.text).slice(0, 140)),
  ]
  return el("tr", { "data-status": run.status }, el("th", { scope: "row" }, title), cells)
}
