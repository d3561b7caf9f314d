"""A stop button in a web page: FastAPI, one route that streams an answer, one that stops it.

    python examples/stop_button.py            # a scripted model, needs no key; then open http://127.0.0.1:8000
    python examples/stop_button.py openai:gpt-5.2

Pressing the button closes the provider's socket, whichever connection the answer streams on, and shows the receipt. So
does closing the tab: the server cancels the handler, and the run with it. Needs `pip install fastapi uvicorn`.
"""

import os
import sys

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse

from halter import Agent, runtime
from halter.models import Scripted

RIVERS = "A river begins almost nowhere, high on a hillside, in the rain. " * 40
agent = Agent(sys.argv[1] if sys.argv[1:] else Scripted(RIVERS, pace=0.05))
app = FastAPI()


@app.post("/ask")
async def ask(question: str) -> StreamingResponse:
    run = agent.run(question)
    return StreamingResponse(run.text_stream(), media_type="text/plain", headers={"Run-Id": run.id})


@app.post("/stop/{run_id}")
async def stop(run_id: str) -> dict[str, str]:
    run = runtime().find(run_id)
    if run is None:
        raise HTTPException(404, "no such run is live")
    run.cancel("the stop button")
    result = await run.finished()
    return {"status": result.status, "receipt": str(result.receipt)}


PAGE = """<!doctype html>
<title>A stop button</title>
<button id="ask">Ask</button> <button id="stop" disabled>Stop</button>
<p id="answer"></p>
<pre id="receipt"></pre>
<script>
const [ask, stop, answer, receipt] = ["ask", "stop", "answer", "receipt"].map((id) => document.getElementById(id))
let run
ask.onclick = async () => {
  answer.textContent = receipt.textContent = ""
  const response = await fetch("/ask?question=Write on rivers", { method: "POST" })
  run = response.headers.get("Run-Id")
  stop.disabled = !(ask.disabled = true)
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let read; !(read = await reader.read()).done; ) answer.textContent += read.value
  ask.disabled = !(stop.disabled = true)
}
stop.onclick = async () => {
  const response = await fetch(`/stop/${run}`, { method: "POST" })
  receipt.textContent = response.ok ? (await response.json()).receipt : "it was over already"
}
</script>
"""


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
