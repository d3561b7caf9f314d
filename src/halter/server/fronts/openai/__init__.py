"""OpenAI's API over the served runnables: chat completions, Responses, conversations, models.

- `router.py`: the routes; `errors.py`: how a problem is shown
- `bodies.py`: request bodies, and which fields are used, passed over or refused; `asking.py`: a body as a run to start
- `chat_messages.py`: messages of chat completions as Halter's; `content.py`: their parts
- `items.py`: input and output items of Responses as messages, and back
- `chat_format.py`: events as chunks, and as a completion; `chat.py`: its routes
- `response_format.py`: events as semantic events; `response_object.py`: the response itself; `responses.py`: its routes
- `resuming.py`: a stream from `starting_after` on; `sessions.py`: `previous_response_id` and `conversation` as sessions
- `conversations.py`, `models.py`: their routes
"""
