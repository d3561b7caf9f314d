"""The routes, one file for each group.

- `runs.py`: start, look, stream; `watching.py`: all live runs; `control.py`: stop, answer, steer
- `sessions.py`: conversations; `users.py`: facts, and all of a user; `operations.py`: health, metrics, audit
- `approvals.py`: what was asked, answered and remembered
- `browser.py`: `client.js` and the dashboard; `live.py`: a run over a WebSocket
- `answers.py`: what several routes answer
"""
