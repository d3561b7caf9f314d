"""How a server of the chat completions format differs from OpenAI's own, as data."""

from __future__ import annotations

import msgspec


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A server's words, where they are not OpenAI's; the defaults are.

    `fields`: of the body, by the setting that stands there; `a.b` is a field inside another.
    `developer_role`: the role of a developer's message. `has_stream_options`: usage in a stream has to be asked for.
    `takes_names`, `takes_refusals`: as fields of a message; a refusal is the message's text elsewhere.
    `image_urls`, `file_urls`: whether the server fetches them. `must_call`: its word for a `required` tool.
    `names_choice`: a tool may be chosen by name; else it is the only one that is sent. `call_id_length`: of a call's
    id, in letters and digits, if only those are taken; `longest_call_id`: its limit, if that is less than 64.
    `after_results`: what the assistant says in between where the server does not take a user's message directly behind
    a tool's. `reasoning`: the field in which thinking goes back once a tool was called, `None` if none;
    `needs_reasoning`: a call without that field is refused.
    """

    fields: dict[str, str] = {}
    developer_role: str = "developer"
    has_stream_options: bool = True
    takes_names: bool = True
    takes_refusals: bool = True
    image_urls: bool = True
    file_urls: bool = False
    must_call: str = "required"
    names_choice: bool = True
    call_id_length: int | None = None
    longest_call_id: int | None = None
    after_results: str | None = None
    reasoning: str | None = None
    needs_reasoning: bool = False

    def field(self, setting: str) -> str:
        """Where a setting stands in the body."""
        return self.fields.get(setting, _FIELDS.get(setting, setting))


_FIELDS = {"max_output_tokens": "max_completion_tokens"}

# "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40" (its 400)
OPENAI = Dialect(longest_call_id=40)
