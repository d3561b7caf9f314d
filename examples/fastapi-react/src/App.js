import { useChat } from "@ai-sdk/react"
import { createElement as h, useState } from "react"

import { stopRuns, transportTo } from "./chat.js"

const transport = transportTo("poet")

/** A chat with a stop button. `id`: the chat's, so that a reload finds it again; `loaded`: its messages so far. */
export function App({ id, loaded }) {
  const [text, setText] = useState("Write on rivers.")
  const { messages, sendMessage, status, stop, error } = useChat({ id, messages: loaded, transport, resume: true })
  const isBusy = status === "submitted" || status === "streaming"

  const send = (event) => {
    event.preventDefault()
    if (!isBusy && text) sendMessage({ text })
  }
  const stopNow = async () => {
    await stopRuns(id) // closing the connection alone would leave the run `linger` seconds
    await stop()
  }

  return h(
    "main",
    null,
    messages.map((message) => h(Message, { key: message.id, message })),
    error && h("p", { role: "alert" }, error.message),
    h(
      "form",
      { onSubmit: send },
      h("input", { value: text, "aria-label": "Message", onChange: (event) => setText(event.target.value) }),
      h("button", { disabled: isBusy }, "Send"),
      h("button", { type: "button", onClick: stopNow, disabled: !isBusy }, "Stop"),
    ),
  )
}

function Message({ message }) {
  const text = message.parts.flatMap((part) => (part.type === "text" ? part.text : [])).join("")
  const wasStopped = message.metadata?.status === "cancelled"
  return h("p", null, h("b", null, `${message.role}: `), text, wasStopped && h("i", null, " [stopped]"))
}
