import { useCallback, useEffect, useRef, useState } from "react"

/** One run at a time: `state` is its snapshot, drawn once per frame. A reload of the page finds the run again. */
export function useRun(halter, name = "run") {
  const current = useRef(null)
  const [state, setState] = useState(null)
  const [outcome, setOutcome] = useState(null)
  const [error, setError] = useState(null)

  const follow = useCallback(async (run) => {
    current.current = run
    setState(null), setOutcome(null), setError(null)
    try {
      for await (const _ of run.batches()) {
        if (current.current !== run) return
        setState(run.snapshot())
        await new Promise((resolve) => requestAnimationFrame(resolve))
      }
      if (current.current === run) setOutcome(run.outcome)
    } catch (problem) {
      if (current.current === run) setError(problem)
    }
  }, [])

  useEffect(() => {
    const run = halter.resume(name)
    if (run) follow(run)
    return () => current.current?.close() // the run is stopped `linger` seconds later, if nobody comes back
  }, [halter, name, follow])

  const start = useCallback((agent, input) => follow(halter.run(agent, input, { remember: name })), [halter, name, follow])
  const stop = useCallback((message) => current.current?.cancel(message), [])
  return { state, outcome, error, start, stop }
}
