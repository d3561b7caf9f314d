"""The AI SDK in Node: its Chat of `@ai-sdk/react`, and the one of `ai` 7."""

from __future__ import annotations

SIX = 'import { Chat } from "@ai-sdk/react"\nimport * as ai from "ai"\n'
# `ai` 7 wants React of its own: here its Chat keeps its state in plain fields.
SEVEN = """
import * as ai from "ai-7"
class State {
  status = "ready"
  error = undefined
  messages = []
  pushMessage = (message) => { this.messages = [...this.messages, message] }
  popMessage = () => { this.messages = this.messages.slice(0, -1) }
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((each, place) => (place === index ? structuredClone(message) : each))
  }
  snapshot = structuredClone
}
class Chat extends ai.AbstractChat {
  constructor({ messages, ...init }) {
    const state = new State()
    state.messages = messages ?? []
    super({ ...init, state })
  }
}
"""
BEGIN = """
const chatAt = (url) => (options = {}, body = {}) => {
  const transport = new ai.DefaultChatTransport({ api: `${url}/v1/ai-sdk/agent/chat`, body })
  return new Chat({ id: "chat", transport, ...options })
}
const texts = (chat) =>
  chat.messages.map(({ role, parts }) => [role, parts.flatMap(({ text }) => text ?? []).join("")])
const until = async (what) => {
  for (let turn = 0; !what(); turn++) {
    if (turn > 1000) throw new Error("it never came")
    await sleep(5)
  }
}
// What a client makes of the bytes of a response: the message, and the types of all chunks.
const read = async (body) => {
  const transport = new ai.DefaultChatTransport({ fetch: async () => new Response(body) })
  const kinds = []
  const seen = new TransformStream({ transform: (chunk, to) => { kinds.push(chunk.type); to.enqueue(chunk) } })
  const chunks = await transport.sendMessages({ chatId: "c", messages: [], trigger: "submit-message" })
  let message
  for await (message of ai.readUIMessageStream({ stream: chunks.pipeThrough(seen) }));
  return { message, kinds }
}
"""
MAKE = "const api = `${given.url}/v1/ai-sdk/agent/chat`; const make = chatAt(given.url)\n"
