/** Three figures of the newest runs: how fast stops are, how fast models write, and what agents cost. */
import { count, el, empty, fill, money, name, problem, put, short, took, whole } from "./dom.js"

const MOST = 600 // runs
const SVG = "http://www.w3.org/2000/svg"
const [WIDTH, HEIGHT] = [640, 200]
const [LEFT, BOTTOM] = [54, 22]

export function open(app, place) {
  const found = el("p.quiet", { role: "status" })
  const body = el("div.figures")
  put(place, el("header.head", {}, el("h1", {}, "Figures"), found), body)
  load()

  async function load() {
    try {
      const runs = []
      let before = null
      do {
        const page = await app.halter.runs({ before, limit: 200 })
        runs.push(...page.runs)
        before = page.next
      } while (before && runs.length < MOST)
      const over = runs.filter((run) => run.ended_at).reverse()
      fill(found, `The newest ${count(over.length, "run")} that ended.`)
      fill(body, over.length ? [stops(over), speeds(over), costs(over)] : empty("Nothing to measure yet", "Figures are drawn from runs that have ended."))
    } catch (error) {
      if (error.status === 401) app.askForKey(error.message)
      fill(body, problem(error, load))
    }
  }
  return {}
}

function stops(runs) {
  const points = runs.filter((run) => run.receipt).map((run) => ({ run, y: Math.max(0.05, run.receipt.stopped_after_ms), isBad: !run.receipt.confirmed }))
  const words = points.length ? `Half of ${count(points.length, "stop")} took at most ${took(quantile(points, 0.5))}, 95 % at most ${took(quantile(points, 0.95))}.` : "No run was stopped."
  return figure("Stop latency", words, points, (ms) => took(ms))
}

function speeds(runs) {
  const points = runs
    .filter((run) => run.usage.output && run.ended_at > run.started_at)
    .map((run) => ({ run, y: run.usage.output / (run.ended_at - run.started_at) }))
  const words = points.length ? `Half of ${count(points.length, "run")} wrote at least ${whole(Math.round(quantile(points, 0.5)))} tokens per second.` : "No run has written anything."
  return figure("Tokens per second", words, points, (rate) => `${whole(Math.round(rate * 10) / 10)}/s`)
}

function costs(runs) {
  const agents = new Map()
  for (const run of runs) {
    const sum = agents.get(run.agent) ?? { cost: 0, tokens: 0, runs: 0, unknown: 0 }
    sum.runs++
    sum.tokens += run.usage.input + run.usage.output
    run.cost === null ? sum.unknown++ : (sum.cost += run.cost)
    agents.set(run.agent, sum)
  }
  const all = [...agents].sort(([, one], [, other]) => other.cost - one.cost || other.tokens - one.tokens)
  const isPriced = all.some(([, sum]) => sum.cost > 0)
  const most = Math.max(...all.map(([, sum]) => (isPriced ? sum.cost : sum.tokens)), 1e-12)
  const rows = all.map(([agent, sum]) =>
    el("tr", {}, el("th", { scope: "row" }, name(agent)), el("td.bar", {}, el("span", { style: { "--to": `${((isPriced ? sum.cost : sum.tokens) / most) * 100}%` }, "aria-hidden": "true" })), el("td.number", {}, sum.unknown === sum.runs ? "unknown" : money(sum.cost)), el("td.number", {}, whole(sum.tokens)), el("td.number", {}, whole(sum.runs))),
  )
  const heads = ["Agent", "", "Cost", "Tokens", "Runs"].map((title) => (title ? el("th", { scope: "col" }, title) : el("td")))
  const words = isPriced ? `${money(all.reduce((sum, [, each]) => sum + each.cost, 0))} in all.` : "No price is known for these models: the bars show tokens."
  const table = el("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Cost per agent" }, el("table.costs", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)))
  return el("figure", {}, el("figcaption", {}, el("h2", {}, "Cost per agent"), el("p", {}, words)), table)
}

function quantile(points, part) {
  const sorted = points.map((point) => point.y).sort((one, other) => one - other)
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))]
}

/** Each run as a thread that hangs from the line above, on a logarithmic scale: the longer, the deeper. */
function figure(title, words, points, unit) {
  const caption = el("figcaption", {}, el("h2", {}, title), el("p", {}, words))
  if (!points.length) return el("figure", {}, caption)
  const [least, most] = [Math.min(...points.map((point) => point.y)), Math.max(...points.map((point) => point.y))]
  const [low, high] = [Math.floor(Math.log10(least)), Math.max(Math.ceil(Math.log10(most)), Math.floor(Math.log10(least)) + 1)]
  const down = (y) => 8 + ((Math.log10(y) - low) / (high - low)) * (HEIGHT - BOTTOM - 8)
  const across = (at) => LEFT + 12 + (points.length === 1 ? 0.5 : at / (points.length - 1)) * (WIDTH - LEFT - 24)
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${words}` })
  for (let power = low; power <= high; power++) {
    const y = down(10 ** power)
    picture.append(svg("line", { class: "tick", x1: LEFT, x2: WIDTH, y1: y, y2: y }), svg("text", { x: LEFT - 8, y: y + 4 }, unit(10 ** power)))
  }
  points.forEach(({ y, isBad }, at) => {
    const x = across(at)
    const kind = isBad ? "bad" : "good"
    picture.append(svg("line", { class: `hang ${kind}`, x1: x, x2: x, y1: 8, y2: down(y) }), svg("circle", { class: kind, cx: x, cy: down(y), r: points.length > 150 ? 1.8 : 3 }))
  })
  picture.append(svg("line", { class: "held", x1: LEFT, x2: WIDTH, y1: 8, y2: 8 }), svg("text", { x: WIDTH, y: HEIGHT - 4 }, "newest"), svg("text", { class: "first", x: LEFT, y: HEIGHT - 4 }, "oldest"))
  const rows = points.slice(-100).reverse().map(({ run, y }) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: `#/run/${encodeURIComponent(run.id)}` }, name(run.agent), " ", short(run.id))), el("td.number", {}, unit(y))))
  const table = el("details", {}, el("summary", {}, "As a table"), el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Run"), el("th", { scope: "col" }, title))), el("tbody", {}, rows)))
  return el("figure", {}, caption, picture, table)
}

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value)
  if (text) node.textContent = text
  return node
}
