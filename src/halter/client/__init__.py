"""Runs on a Halter server, with the words of `halter.Run`.

- `client.py`: `Client`, the server as its users hold it
- `run.py`: `RemoteRun`, a handle on one run; `reader.py`: its events, for tasks and threads
- `state.py`: what is known of a run; `following.py`: the event stream that tells it, resumed by itself
- `transport.py`: requests and their errors
"""

from halter.client.client import Client
from halter.client.run import RemoteRun

__all__ = ["Client", "RemoteRun"]
