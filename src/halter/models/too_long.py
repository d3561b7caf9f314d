"""How providers say that a prompt is too long for their model, and by how much. Pure.

There is no status for it, and a code only with some: with the rest it is a sentence. Each expression here stands for
one that a provider was seen to send. A request that is too large for a limit per minute (429) is none of these: a
pause helps there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

TOO_LARGE: Final = 413  # Content Too Large (RFC 9110, 15.5.14)
_OTHERS: Final = frozenset((401, 403, 404, 407, 408, 409, 429))  # these say something else, whatever the words

_CODES: Final = ("contextlengthexceeded", "exceedcontextsize", "modelcontextwindowexceeded", "requesttoolarge")
# Bounded, as is all that is looked for behind something: an error may repeat a prompt, and a list of a thousand numbers
# would be looked through from each of them to its end, on the event loop.
_NUMBER: Final = r"(?<!\d)(\d[\d,]{0,14})(?!\d)"
_LOOKED_AT: Final = 16 * 1024  # characters, at each end: between them stands what was sent


def _any_of(*expressions: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(expression.replace("N", _NUMBER), re.IGNORECASE | re.DOTALL) for expression in expressions)


_SAYS_SO: Final = _any_of(
    r"maximum (?:context|prompt|model) length",  # OpenAI, DeepSeek, OpenRouter, xAI, vLLM, Mistral
    r"prompt (?:is )?too long",  # Anthropic, Ollama
    r"input is too long for",  # Bedrock
    r"exceed(?:s|ed)?\b[^.]{0,40}\bcontext (?:window|limit|size|length)",  # OpenAI, Anthropic, llama.cpp
    r"context (?:window|limit|size|length)[^.]{0,20}\bexceed",  # LM Studio, MiniMax
    r"input token count[^.]{0,80}(?:exceeds|only supports)",  # Gemini, Vertex AI
    r"token count of \d+ exceeds the limit",  # GitHub's
    r"reduce the length of the (?:messages|prompt|input)",  # Groq, Cerebras
    r"context length (?:of|is) only|(?:greater|longer) than the (?:model's )?context length",  # LM Studio, SGLang
    r"exceeded model token limit",  # Moonshot
    r"range of input length should be",  # DashScope
    r"inputs` must have less than \d+ tokens|`inputs` tokens \+ `max_new_tokens` must be",  # Hugging Face TGI
    r"configured context size is",
)
_LIMITS: Final = _any_of(
    r"maximum (?:context|prompt|model) length (?:is|of) (?:only )?N",
    r"with N maximum context length",
    r"> N maximum",
    r"context limit: [\d,]+ \+ [\d,]+ > N",
    r"maximum number of tokens allowed \(N\)",
    r"only supports up to N",
    r"context (?:size|window|length) (?:is |of )?(?:only )?\(?N(?: tokens)?\)?",
    r"\bn_ctx N",
    r"exceeds the limit of N",
    r"while limit is N",
    r"token limit: N",
    r"length should be \[\d+, N\]",
    r"must have less than N tokens|must be <= N",
    r"\blimit N, requested",
)
_SIZES: Final = _any_of(
    r"total of (?:at least )?N",
    r"requested (?:about )?N tokens",
    r"(?:resulted in|contains|has) (?:at least )?N",
    r"too long: N tokens",
    r"token count \(N\)|token count (?:is|of) N",
    r"\(N tokens\)|requested tokens \(N\)",
    r"\bn_prompt_tokens N",
    r"current length is N",
    r"requested: N",
    r"given: N",
    r"first N tokens when",
    r", requested N",
)
_SUM: Final = re.compile(rf"{_NUMBER} \+ {_NUMBER} > ")  # Anthropic: the prompt, and the answer that was asked for


class Excess(NamedTuple):
    """By how much: tokens that the model takes, and those of the request; `None` where it is not said."""

    limit: int | None = None
    tokens: int | None = None


def excess(message: str, *, status: int | None = None, code: str | None = None) -> Excess | None:
    """What an error says of the prompt's length; `None` if that is not what it is about."""
    if status in _OTHERS:
        return None
    if len(message) > 2 * _LOOKED_AT:
        message = f"{message[:_LOOKED_AT]} … {message[-_LOOKED_AT:]}"
    letters = "".join(filter(str.isalpha, (code or "").lower()))
    is_it = status == TOO_LARGE or any(word in letters for word in _CODES)
    if not is_it and not any(expression.search(message) for expression in _SAYS_SO):
        return None
    limit = next(_numbers(_LIMITS, message), None)
    told = (size for size in (*_sums(message), *_numbers(_SIZES, message)) if limit is None or size > limit)
    return Excess(limit, next(told, None))


def _numbers(expressions: tuple[re.Pattern[str], ...], message: str) -> Iterator[int]:
    for expression in expressions:
        for found in expression.finditer(message):
            yield next(_read(group) for group in found.groups() if group is not None)


def _sums(message: str) -> Iterator[int]:
    return (_read(found[1]) + _read(found[2]) for found in _SUM.finditer(message))


def _read(digits: str) -> int:
    return int(digits.replace(",", ""))
