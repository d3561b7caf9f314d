"""The routes, one file for each group.

- `runs.py`: start, look, stream; `control.py`: stop, answer, steer
- `sessions.py`: conversations; `operations.py`: health
"""
