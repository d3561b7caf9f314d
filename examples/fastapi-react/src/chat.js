import { DefaultChatTransport } from "ai"

/** What `useChat` needs to talk with one agent. The run outlives a reload of the page by `linger` seconds. */
export const transportTo = (agent, { server = "", linger = 30 } = {}) =>
  new DefaultChatTransport({ api: `${server}/v1/ai-sdk/${agent}/chat`, body: { linger } })

/** Really stops the answer that is on its way in a chat, also before it has begun. Returns the runs that were stopped. */
export const stopRuns = async (chat, { server = "" } = {}) => {
  const headers = { "Content-Type": "application/json" }
  const body = JSON.stringify({ session: chat, message: "the stop button" })
  const answer = await fetch(`${server}/v1/cancel?wait=5`, { method: "POST", headers, body })
  if (!answer.ok) throw new Error(`the server did not stop the answer: ${await answer.text()}`)
  return (await answer.json()).runs
}

/** The chat's messages so far, to begin with after a reload. */
export const messagesOf = async (agent, chat, { server = "" } = {}) => {
  const answer = await fetch(`${server}/v1/ai-sdk/${agent}/chat/${chat}/messages`)
  if (!answer.ok) throw new Error(`the server did not show the chat: ${await answer.text()}`)
  return answer.json()
}
