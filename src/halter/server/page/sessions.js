/** Conversations: search, filters, and the way into each. */
import { count, el, empty, fill, moment, name, put } from "./dom.js"
import { filter, listing } from "./listing.js"

const PAGE = 30

export function open(app, place, id, query) {
  const hits = el("ol.list.hits", { "aria-label": "Messages found" })
  const ask = (path, values) => app.halter.request("GET", `/v1/${path}?${new URLSearchParams(values)}`)
  return listing(app, place, {
    title: "Sessions",
    path: "sessions",
    filters: [filter("Words", "text", query, null, "search"), filter("User", "user", query), filter("Tag", "tag", query)],
    go: "Search",
    list: true,
    what: ["session"],
    first: hits,
    async load(values, offset) {
      const { sessions } = await ask("sessions", { ...values, limit: PAGE, offset: offset ?? 0 })
      if (offset === null) fill(hits)
      if (offset === null && values.text) put(hits, (await ask("search", { text: values.text, limit: 10 })).hits.map(hit))
      return { rows: sessions.map(row), next: sessions.length < PAGE ? null : (offset ?? 0) + PAGE }
    },
    nothing: (isFiltered) =>
      isFiltered ? empty("No session fits", "Try fewer words.") : empty("No sessions yet", "A session is a conversation that lasts. ", el("a", { href: "#/chat" }, "Start one"), "."),
  })
}

const chat = (id, title) => el("a", { href: `#/chat/${encodeURIComponent(id)}` }, name(title))
const hit = ({ session, role, text }) => el("li", {}, chat(session, session), el("span.quiet", {}, role), el("p", { dir: "auto" }, text.slice(0, 240)))

function row(session) {
  const tags = session.tags.map((tag) => [" ", el("span.tag", {}, name(tag))])
  const facts = [count(session.messages, "message"), session.user && [" · ", name(session.user)], tags, session.running && " · a run has its turn"]
  return el("li", { "data-status": session.running && "running" }, chat(session.id, session.title || session.id), el("span.quiet", {}, facts), el("time", {}, moment(session.updated_at)))
}
