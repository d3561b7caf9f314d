/** All live runs: as lines on one axis of time, with the runs below them. */
import { announce, count, drawing, el, empty, fill, isFinal, name, put, say, short, took, whole, WORDS } from "./dom.js"
import { RunLine } from "./lines.js"

const ENDED_KEPT = 30

/** The server's live runs, kept up to date over one connection. */
export class Live {
  runs = new Map()
  ended = [] // those that ended while this page looked, the newest first
  skew = 0 // seconds by which the server's clock is ahead
  #halter
  #watchers = new Set()
  #state = "waiting"
  #error = null
  #isClosed = false
  #controller = null

  constructor(halter) {
    this.#halter = halter
  }

  get count() {
    return this.runs.size
  }

  /** Calls `watcher` now and after each change; returns a function that ends it. */
  watch(watcher) {
    this.#watchers.add(watcher)
    watcher(this.#seen([]))
    return () => this.#watchers.delete(watcher)
  }

  now() {
    return Date.now() / 1000 + this.skew
  }

  close() {
    this.#isClosed = true
    this.#controller?.abort()
    this.#watchers.clear()
  }

  async open() {
    for (let delay = 500; !this.#isClosed; delay = Math.min(delay * 2, 8000)) {
      this.#error = null
      try {
        await this.#read(() => (delay = 500))
      } catch (error) {
        this.#error = error
      }
      if (this.#isClosed) return
      this.#tell("lost")
      if (this.#error?.status === 401 || this.#error?.status === 403) return
      await new Promise((resolve) => setTimeout(resolve, delay))
    }
  }

  async #read(onFrame) {
    this.#controller = new AbortController()
    for await (const frames of this.#halter.frames("/v1/live", this.#controller)) {
      for (const frame of frames) this.#take(frame)
      onFrame()
    }
  }

  #take({ type, runs }) {
    if (type === "live") this.runs = new Map()
    for (const run of runs) {
      this.skew = Math.max(this.skew, (run.started_at ?? 0) - Date.now() / 1000)
      if (!isFinal(run.status)) this.runs.set(run.id, run)
      else if (this.runs.delete(run.id)) this.ended = [run, ...this.ended].slice(0, ENDED_KEPT)
    }
    this.#tell("open", runs)
  }

  #seen(changed) {
    return { state: this.#state, count: this.runs.size, error: this.#error, changed }
  }

  #tell(state, changed = []) {
    this.#state = state
    for (const watcher of this.#watchers) watcher(this.#seen(changed))
  }
}

// --- the view --------------------------------------------------------------------------------------------------

const LEAST_WINDOW = 15 // seconds that the axis shows
const MOST_WINDOW = 180

export function open(app, place) {
  const search = el("input", { type: "search", placeholder: "Agent, id, tag, session", "data-search": true, "aria-label": "Filter the live runs" })
  const summary = el("p.quiet")
  const grid = el("div.grid", { role: "treegrid", "aria-label": "Live runs", tabIndex: -1 })
  const nothing = el("div")
  const ended = el("ol.ended", { "aria-label": "Runs that ended lately" })
  const begin = el("span")
  const axis = el("p.axis", { "aria-hidden": "true" }, begin, el("span", {}, "now"))
  const lately = el("section.lately", { hidden: true }, el("h2", {}, "Ended lately"), ended)
  put(place, el("header.head", {}, el("h1", {}, "Live runs"), summary, search), axis, grid, nothing, lately)

  const rows = new Map() // those that are drawn
  const unfolded = new Set()
  let chosen = null
  let chosenAt = 0
  let items = []

  function fits(run) {
    const words = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean)
    const text = [run.agent, run.id, run.session, run.user, ...run.tags, ...run.children.map((child) => child.name)].join(" ").toLowerCase()
    return words.every((word) => text.includes(word))
  }

  function flatten() {
    items = []
    const roots = [...app.live.runs.values()].filter(fits)
    roots.forEach((run, at) => {
      items.push({ id: run.id, root: run, run, level: 1, size: roots.length, place: at + 1, hasChildren: run.children.length > 0 })
      if (!unfolded.has(run.id) && !(roots.length <= 12 && !unfolded.has(`-${run.id}`))) return
      const below = (parent, level) => {
        const children = run.children.filter((child) => child.parent_id === parent)
        children.forEach((child, place) => {
          items.push({ id: child.id, root: run, run: child, level, size: children.length, place: place + 1, hasChildren: false })
          if (level < 9) below(child.id, level + 1)
        })
      }
      below(run.id, 2)
    })
  }

  const draw = drawing(() => {
    flatten()
    const now = app.live.now()
    const oldest = Math.min(now - LEAST_WINDOW, ...items.slice(0, 400).map(({ run }) => run.started_at ?? now))
    const from = Math.max(oldest, now - MOST_WINDOW)
    say(begin, `${took((now - from) * 1000)} ago`)
    say(summary, items.length ? summaryOf(app.live) : "")
    axis.hidden = !items.length
    drawRows(from, now)
    drawEnded()
  })

  function drawRows(from, now) {
    const height = parseFloat(getComputedStyle(grid).getPropertyValue("--row")) || 52
    grid.style.setProperty("--rows", items.length)
    grid.hidden = !items.length
    grid.setAttribute("aria-rowcount", items.length)
    const top = grid.getBoundingClientRect().top
    const first = Math.max(0, Math.floor(-top / height) - 4)
    const last = Math.min(items.length, Math.ceil((innerHeight - top) / height) + 4)
    const hadFocus = grid.contains(document.activeElement)
    const at = items.findIndex((item) => item.id === chosen)
    if (at >= 0) chosenAt = at
    else chosen = items[(chosenAt = Math.max(0, Math.min(chosenAt, items.length - 1)))]?.id ?? null // its neighbour
    const seen = new Set()
    const places = Array.from({ length: Math.max(0, last - first) }, (_, at) => first + at)
    if (chosen && !places.includes(chosenAt)) places.push(chosenAt) // it may have the focus
    for (const at of places) {
      const item = items[at]
      let row = rows.get(item.id)
      if (!row) rows.set(item.id, (row = new Row(app, (id) => choose(id), (id) => unfold(id))))
      row.set(item, at, from, now, item.id === chosen, item.hasChildren && items[at + 1]?.root === item.root)
      if (row.node.parentNode !== grid) grid.append(row.node)
      seen.add(item.id)
    }
    for (const [id, row] of rows) {
      if (seen.has(id)) continue
      row.node.remove()
      rows.delete(id)
    }
    if (hadFocus && !grid.contains(document.activeElement)) (rows.get(chosen)?.node ?? document.getElementById("main")).focus()
    const isNothing = !items.length
    if (isNothing !== (nothing.childElementCount > 0)) {
      fill(nothing, isNothing && nothingLive(app))
    }
  }

  const isOpen = (item) => items[items.indexOf(item) + 1]?.root === item.root // the next row is below it

  let shownEnded = null
  function drawEnded() {
    if (shownEnded === app.live.ended) return
    shownEnded = app.live.ended
    lately.hidden = !shownEnded.length
    fill(ended, shownEnded.slice(0, 12).map((run) => endedRow(run)))
  }

  function choose(id, focuses = true) {
    chosen = id
    draw()
    if (focuses) requestAnimationFrame(() => requestAnimationFrame(() => rows.get(id)?.node.focus({ preventScroll: true })))
  }

  function unfold(id, opens = null) {
    const item = items.find((each) => each.id === id)
    if (!item?.hasChildren) return
    const is = isOpen(item)
    if (opens === is) return
    is ? unfolded.delete(id) : unfolded.add(id)
    is ? unfolded.add(`-${id}`) : unfolded.delete(`-${id}`)
    draw()
  }

  function step(by) {
    const at = Math.max(0, Math.min(items.length - 1, items.findIndex((item) => item.id === chosen) + by))
    if (!items[at]) return
    const height = parseFloat(getComputedStyle(grid).getPropertyValue("--row")) || 52
    const top = grid.getBoundingClientRect().top + at * height
    if (top < 90 || top + height > innerHeight - 20) scrollBy(0, top - innerHeight / 2)
    choose(items[at].id)
  }

  const stops = [app.live.watch(({ changed }) => {
    tell(changed)
    draw()
  })]
  const timer = setInterval(draw, matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250)
  addEventListener("scroll", draw, { passive: true })
  addEventListener("resize", draw)
  search.addEventListener("input", draw)
  return {
    close() {
      stops.forEach((stop) => stop())
      clearInterval(timer)
      removeEventListener("scroll", draw)
      removeEventListener("resize", draw)
    },
    onKey(event) {
      const isInGrid = grid.contains(event.target)
      const root = items.find((item) => item.id === chosen)
      const steps = { j: 1, k: -1, ...(isInGrid || event.target === document.body || event.target.id === "main" ? { ArrowDown: 1, ArrowUp: -1 } : {}) }
      if (event.key in steps) step(steps[event.key])
      else if (!root) return false
      else if (isInGrid && event.key === "Home") step(-items.length)
      else if (isInGrid && event.key === "End") step(items.length)
      else if (isInGrid && event.key === "ArrowRight") unfold(chosen, true)
      else if (isInGrid && event.key === "ArrowLeft") unfold(chosen, false)
      else if (event.key === "Enter" && event.target.getAttribute?.("role") === "row") app.go(`/run/${encodeURIComponent(root.root.id)}`)
      else if (event.key === "s") app.stopRun(root.id)
      else if (event.key === "m") app.stopRun(root.id, { asks: true })
      else return false
      return true
    },
  }
}

function tell(changed) {
  const asking = changed.filter((run) => run.questions && !isFinal(run.status))
  const ended = changed.filter((run) => isFinal(run.status))
  if (asking.length === 1 && !told.has(asking[0].id)) announce(`${asking[0].agent} waits for an answer.`)
  for (const run of asking) told.add(run.id)
  if (ended.length === 1) announce(`${ended[0].agent} ${WORDS[ended[0].status]}.`)
  else if (ended.length) announce(`${count(ended.length, "run")} ended.`)
}
const told = new Set()

function summaryOf(live) {
  const runs = [...live.runs.values()]
  const waiting = runs.filter((run) => run.questions).length
  const parts = [count(runs.length, "run"), waiting && `${waiting} waiting for an answer`]
  return parts.filter(Boolean).join(", ")
}

function nothingLive(app) {
  const chat = el("a", { href: "#/chat" }, "Start a chat")
  if (app.live.count) return empty("No live run fits", "Change the filter, or press Esc in it.")
  return empty("Nothing is running", "A line appears here for each run, as long as it lives. ", chat, ", or start a run over the ", el("a", { href: "docs" }, "API"), ".")
}

class Row {
  constructor(app, choose, unfold) {
    this.line = new RunLine()
    const cell = (what, ...children) => el(`span.${what}`, { role: "gridcell" }, ...children)
    this.fold = el("button.fold", { type: "button", tabIndex: -1, onclick: () => unfold(this.id) }, "")
    this.title = el("a.title", { tabIndex: -1 })
    this.id_ = el("small")
    this.tail = el("bdi.tail", { dir: "auto" })
    this.age = cell("age")
    this.tokens = cell("tokens")
    this.stop = el("button.cut.small", { type: "button", tabIndex: -1, onclick: () => app.stopRun(this.id) }, "Stop")
    const who = cell("who", this.fold, el("span.state", {}), this.title, this.id_)
    this.state = who.querySelector(".state")
    const parts = [who, cell("say", this.tail), cell("path", this.line.node), this.age, this.tokens, cell("act", this.stop)]
    this.node = el("div.row", { role: "row", tabIndex: -1, onfocus: () => choose(this.id, false) }, parts)
  }

  set({ id, root, run, level, size, place, hasChildren }, at, from, now, isChosen, isOpen) {
    const status = run.questions && run.status === "running" ? "waiting" : run.status
    const { node } = this
    if (this.id !== id) {
      this.id = id
      this.title.replaceChildren(name(run.agent ?? run.name))
      this.title.href = `#/run/${encodeURIComponent(root.id)}`
      say(this.id_, short(id))
      this.stop.setAttribute("aria-label", `Stop ${run.agent ?? run.name} ${short(id)}`)
    }
    node.tabIndex = isChosen ? 0 : -1
    node.dataset.status = status
    node.style.setProperty("--at", at)
    node.style.setProperty("--level", level)
    node.setAttribute("aria-rowindex", at + 1)
    node.setAttribute("aria-level", level)
    node.setAttribute("aria-setsize", size)
    node.setAttribute("aria-posinset", place)
    node.setAttribute("aria-selected", isChosen)
    if (hasChildren) node.setAttribute("aria-expanded", isOpen)
    else node.removeAttribute("aria-expanded")
    this.fold.hidden = !hasChildren
    this.fold.setAttribute("aria-label", isOpen ? "Hide the runs below" : "Show the runs below")
    say(this.fold, isOpen ? "▾" : "▸")
    say(this.state, WORDS[status])
    say(this.tail, run.questions ? "waits for your answer" : (run.tail ?? "").replace(/\s+/g, " "))
    say(this.age, run.started_at ? took(Math.max(0, Math.floor((run.ended_at ?? now) - run.started_at) * 1000)).replace("0 ms", "0 s") : "queued")
    say(this.tokens, run.usage?.output ? `${whole(run.usage.output)} tok` : "")
    this.stop.disabled = status === "cancelling" || isFinal(status)
    this.line.set({ ...run, status }, from, now)
  }
}

function endedRow(run) {
  const line = new RunLine()
  const begin = run.started_at ?? run.ended_at
  line.set(run, begin, begin + ((run.ended_at ?? begin) - begin) * 1.04)
  const how = run.receipt ? `stopped in ${took(run.receipt.stopped_after_ms)}` : WORDS[run.status]
  const title = el("a", { href: `#/run/${encodeURIComponent(run.id)}` }, name(run.agent), " ", el("small", {}, short(run.id)))
  return el("li", { "data-status": run.status }, title, line.node, el("span.quiet", {}, how))
}
