/** The audit log: who started, stopped, answered and deleted what, and with which effect. */
import { el, empty, moment, name, REASONS } from "./dom.js"
import { filter, listing } from "./listing.js"

const PAGE = 100
const ACTIONS = "run.start run.cancel run.ended run.input run.message session.create session.update session.fork session.rewind session.delete user.delete user.delete_facts user.delete_fact"

export function open(app, place, id, query) {
  const actions = [["", "any"], ...ACTIONS.split(" ").map((action) => [action, action])]
  return listing(app, place, {
    title: "Audit log",
    path: "audit",
    filters: [filter("Action", "action", query, actions), filter("Run, session or user", "target", query)],
    go: "Filter",
    table: ["When", "Who", "Did", "To", "Effect", "Why"],
    what: ["entry", "entries"],
    async load(values, before) {
      const asked = new URLSearchParams({ ...values, ...(before !== null && { before }), limit: PAGE })
      const { entries, next } = await app.halter.request("GET", `/v1/audit?${asked}`)
      return { rows: entries.map(row), next }
    },
    nothing: () => empty("Nothing is recorded", "Starts, stops, answers and deletions are listed here."),
  })
}

const PLACES = { run: "run", session: "chat" }

function row(entry) {
  const place = PLACES[entry.action.split(".")[0]]
  const target = place ? el("a", { href: `#/${place}/${encodeURIComponent(entry.target)}` }, name(entry.target)) : name(entry.target)
  const why = [entry.reason && (REASONS[entry.reason] ?? entry.reason), entry.message && el("q", { dir: "auto" }, entry.message)].filter(Boolean)
  const cells = [el("td", {}, name(entry.effect)), el("td", {}, why.map((each, at) => [at ? ": " : "", each]))]
  return el("tr", {}, el("td", {}, moment(entry.at)), el("td", {}, name(entry.actor)), el("td", {}, el("code", {}, entry.action)), el("th", { scope: "row" }, target), cells)
}
