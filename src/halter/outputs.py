"""The type of an answer: the schema that the model is held to, and the way from its text to a value of that type."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec

from halter.codec import Unfit, codec_of
from halter.errors import OutputInvalid
from halter.messages import Message, Text
from halter.request import OutputSchema
from halter.schemas import WRAPPED, strict_schema, without_absent

T = TypeVar("T")
LONGEST_NAME = 64
_AS_WRITTEN = msgspec.json.Decoder(float_hook=msgspec.Raw)
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")

# What providers call an answer that is no whole answer, in lower case: asking again would not mend it.
_CUT_OFF = frozenset(("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"))
_WITHHELD = frozenset(
    ("content_filter", "refusal", "safety", "recitation", "language", "blocklist", "prohibited_content", "spii")
)


class AnswerType(Generic[T]):
    """Answers of the type `given`; immutable. Raises `ConfigurationError` for what is no type, or has no schema."""

    def __init__(self, given: type[T]) -> None:
        self._type = given
        self._codec = codec_of(given, "output")
        raw = self._codec.schema
        self._definitions: dict[str, Any] = raw.get("$defs", {})
        strict = strict_schema(raw)
        self._is_wrapped = strict.is_wrapped
        self.schema = OutputSchema(name=_name_of(given), schema=strict.schema, strict=strict.is_closed)

    def read(self, answer: Message) -> T:
        """The value in an answer. Raises `Unfit`, or `OutputInvalid` where asking again would not help."""
        refused = broken_off(answer)
        if refused is not None:
            raise refused
        try:
            value = _value_in(answer)
            if self._is_wrapped:
                value = _unwrapped(value)
            meant = without_absent(value, self._codec.schema, self._definitions)
            return self._codec.decode(msgspec.json.encode(meant))
        except RecursionError as error:
            raise Unfit("it is nested too deeply") from error

    def error(self, answer: Message, unfit: Unfit) -> OutputInvalid:
        """What to raise when there is no more asking."""
        return OutputInvalid(
            f"the answer is no {self.schema.name}: {unfit}", text=answer.text, reasons=tuple(unfit.reasons)
        )

    def repair(self, unfit: Unfit) -> Message:
        """What the model is told: what is wrong, and to answer again."""
        listed = "\n".join(f"- {reason}" for reason in unfit.reasons)
        return Message.user(
            f"Your answer does not fit the schema {self.schema.name!r}:\n{listed}\n"
            "Answer again, with the whole corrected JSON and nothing else."
        )

    def __repr__(self) -> str:
        return f"<AnswerType {self.schema.name}>"


def broken_off(answer: Message) -> OutputInvalid | None:
    """What ended the answer before it was one: a refusal, its largest length; `None` for one that is whole."""
    reason = answer.finish_reason or ""
    if answer.refusal:
        why, code = f"the model refused: {answer.refusal}", "refusal"
    elif reason.lower() in _CUT_OFF:
        why, code = f"the answer was cut off at its largest length ({reason}): raise max_output_tokens", reason
    elif reason.lower() in _WITHHELD:
        why, code = f"the provider withheld the answer ({reason})", reason
    else:
        return None
    return OutputInvalid(why, text=answer.text or answer.refusal, reasons=(why,), code=code)


def _value_in(answer: Message) -> Any:
    """The JSON value that the answer is, or that its last part is: some models write words before it."""
    try:
        return _json_in(answer.text)
    except Unfit:
        last = next((part.text for part in reversed(answer.parts) if isinstance(part, Text)), "")
        if last == answer.text:
            raise
        try:
            return _json_in(last)
        except Unfit:
            pass
        raise


def _json_in(text: str) -> Any:
    """The JSON value, also between the marks of a code block, which models write where nothing holds them.

    Numbers with a point or an exponent stay as they are written: a `float` would lose a `Decimal`'s last digits.
    """
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.partition("\n")[2].removesuffix("```")
    if not text:
        raise Unfit("it is empty")
    try:
        return _AS_WRITTEN.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Unfit(f"it is no JSON: {error}") from error


def _unwrapped(value: Any) -> Any:
    match value:
        case {"value": inner}:
            return inner
        case _:
            raise Unfit(f"it is no object with the property {WRAPPED!r}")


def _name_of(given: Any) -> str:
    """As providers take it: letters, digits, `_` and `-`, at most 64."""
    name = getattr(given, "__name__", "") if isinstance(given, type) else ""
    return _NOT_IN_A_NAME.sub("_", name)[:LONGEST_NAME].strip("_") or "answer"
