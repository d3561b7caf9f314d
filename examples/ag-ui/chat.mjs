// A conversation in the terminal over AG-UI. Ctrl-C stops the answer: node chat.mjs http://127.0.0.1:8000/v1/ag-ui/poet "Write on rivers."
import { HttpAgent } from "@ag-ui/client"

const [url, question] = process.argv.slice(-2)
const agent = new HttpAgent({ url })
agent.messages.push({ id: crypto.randomUUID(), role: "user", content: question })

process.once("SIGINT", () => agent.abortRun())

await agent.runAgent(
  {},
  {
    onTextMessageContentEvent: ({ event }) => void process.stdout.write(event.delta),
    onRunFinishedEvent: ({ event }) => console.log(`\n[${event.outcome.type}]`),
    onRunErrorEvent: ({ event }) => console.log(`\n[failed: ${event.message}]`),
  },
)
if (agent.abortController.signal.aborted) console.log("\n[stopped]")
