"""The run store of one process: live runs, and the logs of those that are over, for a while.

- `store.py`: the port
- `entry.py`: one run
- `feed.py`: one reader of a run's log
"""
