"""How large the next request will be: as the provider has counted the last one, and our estimate of what is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from halter.compaction.shape import begins_with_summary
from halter.core.ports import Model
from halter.core.tokens import MESSAGE, estimate_parts, estimate_request, estimate_tokens, most_tokens
from halter.messages import Message
from halter.models.prices import context_window
from halter.models.route import Fallback
from halter.request import ModelRequest

TELLING = 500  # tokens by our estimate, at least, between two counts that shall tell how their provider counts
LEAST, MOST = 0.5, 2.0  # how far a provider's count may be from our estimate; beyond that it counts something else


class Gauge:
    """What has been learned in one run of how a provider counts; our estimates are scaled by it."""

    def __init__(self) -> None:
        self._ratio: float | None = None
        self._asked: tuple[ModelRequest, int] | None = None  # what was last counted, and its tokens
        self._counted: tuple[int, int] | None = None  # so many messages, the last answer included, are so many tokens

    @property
    def ratio(self) -> float:
        """The provider's tokens for one of ours."""
        if self._ratio is None and self._asked is not None:
            request, tokens = self._asked
            self._ratio = _within(tokens / max(1, estimate_request(request)))
        return 1.0 if self._ratio is None else self._ratio

    def answered(self, request: ModelRequest, told: int, answer: Message) -> None:
        """A request with the first `told` messages of the conversation was answered."""
        usage = answer.usage
        if usage is None or usage.estimated or not usage.input:
            return
        self._asked = request, usage.input
        self._counted = told + 1, usage.total

    def forget(self) -> None:
        """The conversation is told otherwise from here on, or to another model: what was counted counts no more."""
        self._counted = None

    def refresh(self) -> None:
        """Has the ratio taken from the last count anew."""
        if self._asked is not None:
            self._ratio = None

    def at_least(self, tokens: int, size: int) -> None:
        """A request that we took for `size` tokens has `tokens` or more."""
        self._ratio = self.ratio * max(1.0, tokens / max(1, size))
        self._asked = self._counted = None

    def is_below(self, tokens: int, request: ModelRequest, told: Sequence[Message]) -> bool:
        """Whether the request is certainly no larger: a look that costs next to nothing. False: it may be."""
        if self._counted is not None and self._counted[0] <= len(told):
            count, known = self._counted
            return known + MOST * _estimate(told[count:]) <= tokens
        return MOST * most_tokens(request) <= tokens

    def of(self, request: ModelRequest, told: Sequence[Message]) -> int:
        """Tokens of the request, whose conversation is `told`."""
        if self._counted is not None and self._counted[0] <= len(told):
            count, tokens = self._counted
            return tokens + sum(map(self.of_message, told[count:]))
        if self._ratio is None and self._asked is None:
            self._learn(request, told)
        return ceil(estimate_request(request) * self.ratio)

    def of_message(self, message: Message) -> int:
        """Tokens of one message in a request."""
        return ceil((MESSAGE + estimate_parts(message.parts)) * self.ratio)

    def of_text(self, text: str) -> int:
        return ceil(estimate_tokens(text) * self.ratio)

    def _learn(self, request: ModelRequest, told: Sequence[Message]) -> None:
        """From the answers in a conversation that was loaded: their provider has counted what stands before them."""
        counts = _counts(told)
        at, tokens = next(counts, (0, 0))
        if tokens and begins_with_summary(told):
            self._learn_between(at, tokens, counts, told)
        elif tokens:
            self._ratio = _within(tokens / max(1, estimate_request(request) - _estimate(told[at:])))

    def _learn_between(self, at: int, tokens: int, earlier: Iterator[tuple[int, int]], told: Sequence[Message]) -> None:
        """From how far the counts before the one of `tokens` at `at` have grown up to it: what stood before them all
        may have been another, and longer, when they were made. Where one is no less than the next, it has changed."""
        first, least = at, tokens
        for place, count in earlier:
            if count >= least:
                break
            first, least = place, count
        between = _estimate(told[first:at])
        if between >= TELLING:
            self._ratio = _within((tokens - least) / between)


def _counts(told: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where there is an answer whose provider has counted its request, and how many tokens; the last one first."""
    for at in range(len(told) - 1, -1, -1):
        usage = told[at].usage
        if usage is not None and usage.input and not usage.estimated:
            yield at, usage.input


def _estimate(messages: Sequence[Message]) -> int:
    return sum(MESSAGE + estimate_parts(message.parts) for message in messages)


def _within(ratio: float) -> float:
    return min(max(ratio, LEAST), MOST)


def window_of(model: Model) -> int | None:
    """Tokens of input and output together that the model takes, of several the fewest; `None`: nobody knows."""
    if isinstance(model, Fallback):
        windows = [window for each in model.models if (window := window_of(each)) is not None]
        return min(windows, default=None)
    return context_window(model.name)
