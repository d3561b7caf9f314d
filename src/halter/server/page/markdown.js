/**
 * Markdown as elements, while it streams. It makes nodes, never HTML: what looks like a tag is shown as text.
 *
 * 1. Finished blocks are drawn once; only the last one is drawn again, and an open code block only grows. 2. Work per
 * frame is bounded, however long a block is. 3. Links are http, https or mailto, and show where they lead; images are
 * named, and not fetched.
 */
import { el, put, shown } from "./dom.js"

const LONGEST_BLOCK = 6_000 // characters of one block that are drawn again; a longer one is cut
const DEEPEST = 8
const CHUNK = 40 // blocks that are laid out as one: a long text costs what is in view

/** The text of one message, in an element. */
export class Markdown {
  #text = ""
  #done = 0 // so many characters are drawn for good
  #open = [] // nodes of the last block
  #chunk = null
  #code = null // the open code block: its text node, and how much of the text it has

  constructor(node = el("div.prose", { dir: "auto" })) {
    this.node = node
  }

  /** Shows this text. A longer one that begins as the last one did costs only what is new. */
  set(text, isFinished = false) {
    if (!text.startsWith(this.#text)) {
      this.node.replaceChildren()
      this.#chunk = null
      this.#done = 0
      this.#open = []
      this.#code = null
    }
    this.#text = text
    if (this.#code && !this.#grow()) return
    for (const node of this.#open) node.remove()
    this.#open = []
    const tail = text.slice(this.#done)
    const blocks = blocksOf(tail)
    blocks.forEach((block, place) => {
      const node = draw(block, 0)
      if (!this.#chunk || this.#chunk.childElementCount >= CHUNK) this.node.append((this.#chunk = el("div.chunk")))
      this.#chunk.append(node)
      const isLast = place === blocks.length - 1
      if (!isLast || isFinished) this.#done += block.length
      else this.#leaveOpen(block, node)
    })
  }

  #leaveOpen(block, node) {
    this.#open = [node]
    if (block.type === "code" && !block.isClosed && block.hasHead) {
      this.#code = { node: node.querySelector("code"), at: this.#text.length }
    } else if (block.length > LONGEST_BLOCK) {
      this.#done += block.length // what follows is a block of its own
      this.#open = []
    }
  }

  /** Adds what is new to the open code block; false while it stays open. */
  #grow() {
    const fresh = this.#text.slice(this.#code.at)
    const isOver = /(^|\n) {0,3}(`{3,}|~{3,})/.test(this.#text.slice(Math.max(this.#done, this.#code.at - 8)).slice(0, fresh.length + 8))
    if (isOver && this.#isClosedNow()) {
      this.#code = null
      return true
    }
    this.#code.node.append(shown(fresh))
    this.#code.at = this.#text.length
    return false
  }

  #isClosedNow() {
    const [block] = blocksOf(this.#text.slice(this.#done))
    return block?.type !== "code" || block.isClosed
  }
}

// --- blocks ----------------------------------------------------------------------------------------------------

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n]*$/
const HEADING = /^ {0,3}(#{1,6})(?:\s(.*))?$/s
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?$/s

/** The blocks of a text: `{type, lines, length, …}`; `length` counts the characters up to the next block. */
function blocksOf(text) {
  const lines = text.split("\n")
  const blocks = []
  let at = 0
  while (at < lines.length) {
    if (!lines[at].trim()) {
      const length = lines[at].length + (at < lines.length - 1 ? 1 : 0)
      if (blocks.length) blocks.at(-1).length += length
      else if (length) blocks.push({ type: "space", lines: [], length })
      at++
      continue
    }
    const block = blockAt(lines, at)
    const taken = lines.slice(at, at + block.count)
    block.length = taken.reduce((sum, line) => sum + line.length + 1, 0) - (at + block.count === lines.length ? 1 : 0)
    blocks.push(block)
    at += block.count
  }
  return blocks
}

function blockAt(lines, at) {
  const line = lines[at]
  const fence = FENCE.exec(line)
  if (fence) return codeAt(lines, at, fence)
  const heading = HEADING.exec(line)
  if (heading) return { type: "heading", level: heading[1].length, lines: [wordsOf(heading[2] ?? "")], count: 1 }
  if (RULE.test(line)) return { type: "rule", lines: [], count: 1 }
  if (/^ {0,3}>/.test(line)) return quoteAt(lines, at)
  if (ITEM.test(line)) return listAt(lines, at)
  if (line.includes("|") && cellsOf(lines[at + 1] ?? "").every((cell) => /^:?-+:?$/.test(cell))) return tableAt(lines, at)
  let end = at + 1
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) end++
  return { type: "paragraph", lines: lines.slice(at, end), count: end - at }
}

const startsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) || /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line)

/** A heading without the hashes that close it. */
function wordsOf(text) {
  const words = text.trim().split(" ")
  if (/^#+$/.test(words.at(-1))) words.pop()
  return words.join(" ").trim()
}

function codeAt(lines, at, [, mark, language]) {
  const closes = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`)
  let end = at + 1
  while (end < lines.length && !closes.test(lines[end])) end++
  const isClosed = end < lines.length
  const code = { lines: lines.slice(at + 1, end), language, isClosed, hasHead: lines.length > at + 1 }
  return { type: "code", ...code, count: end - at + (isClosed ? 1 : 0) }
}

function quoteAt(lines, at) {
  let end = at
  while (end < lines.length && lines[end].trim() && (/^ {0,3}>/.test(lines[end]) || !startsBlock(lines[end]))) end++
  return { type: "quote", lines: lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, "")), count: end - at }
}

function listAt(lines, at) {
  const isOrdered = /\d/.test(ITEM.exec(lines[at])[2])
  const start = isOrdered ? parseInt(ITEM.exec(lines[at])[2], 10) : 0
  const indent = ITEM.exec(lines[at])[1].length
  const items = []
  let end = at
  for (; end < lines.length; end++) {
    const line = lines[end]
    const item = ITEM.exec(line)
    if (item && item[1].length <= indent + 1 && item[1].length >= indent && !RULE.test(line)) {
      if (/\d/.test(item[2]) !== isOrdered) break
      items.push({ lines: [item[3] ?? ""], inset: item[1].length + item[2].length + 1 })
    } else if (!line.trim()) {
      const next = lines.slice(end + 1, end + 3).find((each) => each.trim())
      if (next === undefined || (!/^ {2}/.test(next) && !ITEM.test(next))) break
      items.at(-1).lines.push("")
    } else if (/^[ \t]/.test(line)) {
      const { inset } = items.at(-1)
      const blank = line.length - line.trimStart().length
      items.at(-1).lines.push(line.slice(Math.min(blank, inset)))
    } else if (startsBlock(line) || lines[end - 1]?.trim() === "") break
    else items.at(-1).lines.push(line)
  }
  return { type: "list", isOrdered, start, items, lines: [], count: end - at }
}

function tableAt(lines, at) {
  let end = at + 2
  while (end < lines.length && lines[end].trim() && lines[end].includes("|")) end++
  return { type: "table", lines: [lines[at], ...lines.slice(at + 2, end)], count: end - at }
}

function cellsOf(line) {
  const cells = line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/)
  return cells.slice(0, 30).map((cell) => cell.trim().replaceAll("\\|", "|"))
}

function draw(block, depth) {
  const text = block.lines.join("\n")
  if (depth > DEEPEST) return el("p", {}, text)
  switch (block.type) {
    case "heading": // all of one level for ears: texts of models skip levels, and pages must not
      return spans(el("h2.heading", { "data-level": block.level }), text)
    case "rule":
      return el("hr")
    case "code":
      return el("pre", { tabIndex: 0, role: "region", "aria-label": block.language ? `Code, ${block.language}` : "Code" }, el("code", {}, text))
    case "quote":
      return el("blockquote", {}, blocksOf(text).map((each) => draw(each, depth + 1)))
    case "list":
      return list(block, depth)
    case "table":
      return table(block.lines)
    case "space":
      return document.createTextNode("")
    default:
      return spans(el("p"), block.lines.map((line) => line.trimEnd()).join("\n").trim())
  }
}

function list({ isOrdered, start, items }, depth) {
  const drawn = items.map(({ lines }) => {
    const task = /^\[([ xX])\][ \t]+/.exec(lines[0])
    if (task) lines = [`${task[1] === " " ? "☐" : "☑"} ${lines[0].slice(task[0].length)}`, ...lines.slice(1)]
    const blocks = blocksOf(lines.join("\n")).filter((block) => block.type !== "space")
    const [first, ...rest] = blocks
    if (first?.type !== "paragraph") return el("li", {}, blocks.map((each) => draw(each, depth + 1)))
    return put(spans(el("li"), first.lines.join("\n")), rest.map((each) => draw(each, depth + 1)))
  })
  return el(isOrdered ? "ol" : "ul", { start: isOrdered && start !== 1 ? start : null }, drawn)
}

function table([head, ...rows]) {
  const row = (line, tag) => el("tr", {}, cellsOf(line).map((cell) => spans(el(tag, tag === "th" ? { scope: "col" } : {}), cell)))
  const body = el("tbody", {}, rows.map((line) => row(line, "td")))
  return el("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Table" }, el("table", {}, el("thead", {}, row(head, "th")), body))
}

// --- what is in a line -----------------------------------------------------------------------------------------

const LINK = /(!?)\[([^[\]]{0,400})\]\(\s*(?:<([^<>\n]{0,2000})>|([^\s()<>]{0,2000}(?:\([^\s()<>]{0,400}\)[^\s()<>]{0,400}){0,4}))(?:\s+(?:"[^"\n]{0,400}"|'[^'\n]{0,400}'))?\s*\)/y
const BARE = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>|https?:\/\/[^\s<>"'`*|\\^{}[\]]{1,2000}/y
const STYLES = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" }

/** Puts the text into the element, with emphasis, code and links. */
function spans(node, text, depth = 0) {
  let plain = 0
  const flush = (end) => end > plain && node.append(shown(text.slice(plain, end)))
  const missing = new Set() // marks that do not close: looked for once
  for (let at = 0; at < text.length; ) {
    const found = depth < DEEPEST && spanAt(text, at, missing, depth)
    if (!found) {
      at++
      continue
    }
    flush(at)
    node.append(found.node)
    at = plain = at + found.length
  }
  flush(text.length)
  return node
}

function spanAt(text, at, missing, depth) {
  const char = text[at]
  if (char === "\\" && /[\\`*_{}[\]()#+\-.!|~<>]/.test(text[at + 1] ?? "")) return { node: shown(text[at + 1]), length: 2 }
  if (char === "&") return entityAt(text, at)
  if (char === "`") return codeSpanAt(text, at, missing)
  if (char === "[" || (char === "!" && text[at + 1] === "[")) return linkAt(text, at, depth)
  if (char === "<" || (char === "h" && !/\w/.test(text[at - 1] ?? " "))) return bareAt(text, at)
  if (char === "*" || char === "_" || char === "~") return styledAt(text, at, missing, depth)
  return null
}

const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00A0" }

function entityAt(text, at) {
  const entity = Object.keys(ENTITIES).find((each) => text.startsWith(each, at))
  return entity ? { node: ENTITIES[entity], length: entity.length } : null
}

function codeSpanAt(text, at, missing) {
  const [mark] = /^`+/.exec(text.slice(at, at + 40))
  if (missing.has(mark)) return { node: mark, length: mark.length }
  let end = text.indexOf(mark, at + mark.length)
  while (end >= 0 && text[end + mark.length] === "`") end = text.indexOf(mark, end + mark.length + 1)
  if (end < 0) {
    missing.add(mark)
    return { node: mark, length: mark.length }
  }
  const code = text.slice(at + mark.length, end).replace(/^ (.+) $/s, "$1")
  return { node: el("code", {}, code), length: end + mark.length - at }
}

function styledAt(text, at, missing, depth) {
  const two = text.slice(at, at + 2)
  const mark = two in STYLES ? two : text[at]
  const inside = at + mark.length
  if (!(mark in STYLES) || missing.has(mark) || !text[inside] || /\s/.test(text[inside])) return null
  if (mark[0] === "_" && /\w/.test(text[at - 1] ?? " ")) return null
  let end = text.indexOf(mark, inside + 1)
  const isWrong = (place) => /\s/.test(text[place - 1]) || (mark[0] === "_" && /\w/.test(text[place + mark.length] ?? " "))
  for (let tries = 0; end >= 0 && isWrong(end); tries++) end = tries < 50 ? text.indexOf(mark, end + mark.length) : -1
  if (end < 0) {
    missing.add(mark)
    return null
  }
  if (mark.length === 1 && text[end + 1] === mark && text[end + 2] === mark) end += 2
  return { node: spans(el(STYLES[mark]), text.slice(inside, end), depth + 1), length: end + mark.length - at }
}

function linkAt(text, at, depth) {
  LINK.lastIndex = at
  const found = LINK.exec(text)
  if (!found) return null
  const [all, isImage, label, bracketed, bare] = found
  const to = bracketed ?? bare ?? ""
  const node = isImage ? link(to, document.createTextNode(shown(`image: ${label || "no description"}`)), true) : link(to, spans(el("span"), label || to, depth + 1), label !== to)
  return { node, length: all.length }
}

function bareAt(text, at) {
  BARE.lastIndex = at
  const found = BARE.exec(text)
  if (!found) return null
  const to = found[1] ?? found[0].replace(/[.,;:!?)]+$/, "")
  return { node: link(to, document.createTextNode(shown(to)), false), length: found[1] ? found[0].length : to.length }
}

/** A link that a person may follow, with its target beside it; what must not be one stays text. */
function link(to, label, showsTarget) {
  const target = targetOf(to)
  if (!target) return el("span", {}, label, ` (${to})`)
  const leads = target.protocol === "mailto:" ? target.pathname : target.host + (target.pathname + target.search).replace(/^\/$/, "")
  const short = leads.length > 60 ? `${leads.slice(0, 59)}…` : leads
  const anchor = { href: target.href, target: "_blank", rel: "noopener noreferrer nofollow", title: target.href }
  return el("a", anchor, label, showsTarget && el("span.target", {}, ` ${short}`))
}

function targetOf(to) {
  try {
    const url = new URL(to)
    const isGood = url.protocol === "mailto:" || ((url.protocol === "https:" || url.protocol === "http:") && !url.username && !url.password)
    return isGood && shown(to) === to ? url : null
  } catch {
    return null
  }
}
