/** A view that lists something, page by page, with filters that are kept in the address. */
import { count, el, fill, problem, put } from "./dom.js"

/** One filter: a text, or a choice of `[value, words]`. */
export function filter(label, key, query, choices = null, type = "text") {
  const options = choices?.map(([value, words]) => el("option", { value, selected: value === (query[key] ?? "") }, words))
  const control = choices ? el("select", { name: key }, options) : el("input", { name: key, type, value: query[key] ?? "", autocomplete: "off", "data-search": true })
  return el("label.field", {}, label, control)
}

/**
 * `load(values, next)` resolves to `{rows, next}` of one page; `next` is `null` for the first one, and after the last.
 * `nothing(isFiltered)` is what is shown if there is none.
 */
export function listing(app, place, { title, path, filters, go, table, list, what, load, nothing, first = null }) {
  const form = el("form.filters", { role: "search" }, filters, el("button", {}, go))
  const found = el("p.quiet", { role: "status" })
  const rows = list ? el("ol.list", { "aria-label": title }) : el("tbody")
  const head = table && el("thead", {}, el("tr", {}, table.map((each) => el("th", { scope: "col" }, each))))
  const shell = list ? rows : el("div.scroll", { tabIndex: 0, role: "region", "aria-label": title }, el("table.runs", {}, head, rows))
  const more = el("button", { type: "button", hidden: true, onclick: () => show(false) }, "Older")
  const bottom = el("div")
  let next = null
  let turn = 0
  put(place, el("header.head", {}, el("h1", {}, title), found), form, first, shell, more, bottom)
  form.addEventListener("submit", (event) => {
    event.preventDefault()
    history.replaceState(null, "", `#/${path}${queryOf(valuesOf())}`)
    show(true)
  })
  for (const select of form.querySelectorAll("select")) select.addEventListener("change", () => form.requestSubmit())
  const valuesOf = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value))
  const queryOf = (values) => (Object.keys(values).length ? `?${new URLSearchParams(values)}` : "")

  async function show(isFirst) {
    const mine = ++turn
    try {
      const page = await load(valuesOf(), isFirst ? null : next)
      if (mine !== turn) return
      if (isFirst) fill(rows), fill(bottom)
      put(rows, page.rows)
      next = page.next
      more.hidden = next === null
      shell.hidden = !rows.childElementCount
      fill(found, count(rows.childElementCount, ...what), next !== null && ", and older ones")
      if (shell.hidden) fill(bottom, nothing(Object.keys(valuesOf()).length > 0))
    } catch (error) {
      if (error.status === 401) app.askForKey(error.message)
      shell.hidden = true
      fill(bottom, problem(error, () => show(true)))
    }
  }

  show(true)
  return {}
}
