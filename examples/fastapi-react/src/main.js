import { createElement } from "react"
import { createRoot } from "react-dom/client"

import { App } from "./App.js"

const id = localStorage.getItem("chat") ?? crypto.randomUUID()
localStorage.setItem("chat", id)
createRoot(document.getElementById("root")).render(createElement(App, { id }))
