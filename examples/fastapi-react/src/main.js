import { createElement } from "react"
import { createRoot } from "react-dom/client"

import { App } from "./App.js"
import { messagesOf } from "./chat.js"

const id = localStorage.getItem("chat") ?? crypto.randomUUID()
localStorage.setItem("chat", id)
const loaded = await messagesOf("poet", id)
createRoot(document.getElementById("root")).render(createElement(App, { id, loaded }))
