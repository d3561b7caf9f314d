"""Agents in a terminal: `halter ask` and `halter chat`.

Map of the files:

- `config.py`: settings from files, the environment and the command line; where each comes from
- `models.py`: which model answers, and what to say where there is none
- `assistant.py`: the agent that answers when no app is named
- `safe.py`: text of models and tools, made harmless for a terminal
- `receipts.py`: how a run ended, in one line and in full
- `ask.py`: one question, one answer; `stopping.py`: the signals and the closed output that stop it
"""
