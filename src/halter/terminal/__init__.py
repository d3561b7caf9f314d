"""Agents in a terminal: `halter ask` and `halter chat`.

Map of the files:

- `config.py`: settings from files, the environment and the command line; where each comes from
- `models.py`: which model answers, and what to say where there is none
- `assistant.py`: the agent that answers when no app is named
- `safe.py`: text of models and tools, made harmless for a terminal
- `receipts.py`: how a run ended, in one line and in full
- `ask.py`: one question, one answer; `stopping.py`: the signals and the closed output that stop it
- `chat.py`: `halter chat`; `cli/chat.py` opens it
- `keys.py`: the Esc key, told apart; `prompt.py`: the input line and what stands around it
- `screen.py`: what scrolls up, and what is drawn again; `view.py`: events as a person reads them
- `blocks.py`: Markdown that is still being written; `render.py`: text with styles, as lines
- `turn.py`: one turn and its stop; `answers.py`: what you type when you are asked; `mentions.py`: `@file`
- `commands.py`: the table of slash commands
- `desk.py`: what answers, as the chat sees it; `local.py`: agents of this process; `remote.py`: of a server
- `logs.py`: what libraries log; `doctor.py`: `halter doctor`
"""
