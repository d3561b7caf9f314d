"""Google ADK's API server: its clients start, stream and stop the runs of this one.

- `routes.py`: apps, sessions, `/run` and `/run_sse`; `live.py`: `/run_live`; `left_out.py`: what answers 501
- `bodies.py`: what clients send; `contents.py`: their contents as messages, and back; `errors.py`: problems
- `session_ids.py`: app, user and session as one id; `sessions.py`: sessions with their state; `runs.py`: what becomes
  a run, and how it is stopped
- `format.py`: events as ADK's events, by one table
"""
