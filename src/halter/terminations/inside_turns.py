"""Terminations that can be seen to be true in the middle of a turn, and end it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from halter import checked
from halter.core.cancellation import CancellationToken
from halter.core.settings import seconds
from halter.errors import ConfigurationError
from halter.terminations.combining import Look, Termination, View
from halter.terminations.given import checked_names, checked_words, counts


class TextMention(Termination):
    """As soon as a member has said these words, letter by letter; in the middle of a turn it is stopped there.

    What had arrived by then is kept. `by`: the names of those who may say it; all, if it is left out. `inside`: False
    looks at whole messages only. Raises `ConfigurationError`.
    """

    def __init__(self, text: str, *, by: Sequence[str] = (), inside: bool = True) -> None:
        self.text = checked_words("text", text)
        self.by = checked_names("by", by)
        self.reads = bool(inside)

    @property
    def waits_for(self) -> tuple[str, ...]:
        return self.by

    def begin(self) -> Look:
        seen = 0  # whole messages
        known = dict[str, str]()  # what was being said at the last look, and does not hold the words

        def look(view: View) -> str | None:
            nonlocal seen, known
            new, seen = view.messages[seen:], len(view.messages)
            saying = dict(view.saying) if self.reads else dict[str, str]()
            said = [(message.name, message.text) for message in new]
            said += [(name, self._rest(text, known.get(name, ""))) for name, text in saying.items()]
            known = saying
            name = next((name for name, text in said if self.text in text and counts(name, self.by)), None)
            return name and f"{name} has said {self.text!r}"

        return look

    def _rest(self, text: str, known: str) -> str:
        """Of what is being said, where the words may be: at each look, only the end of a long text is new."""
        return text[max(0, len(known) - len(self.text) + 1) :] if known and text.startswith(known) else text

    def __repr__(self) -> str:
        return f"TextMention({self.text!r})"


class TokenUsage(Termination):
    """When all under the team has used so many tokens, `total`, `input` or `output`; at the first that is reached.

    In the middle of an answer its output is estimated; what was put in counts when the provider has counted it. To be
    held to a limit, and stopped, is what a `Budget` is for. Raises `ConfigurationError` if no number is given.
    """

    reads = True

    def __init__(self, total: int | None = None, *, input: int | None = None, output: int | None = None) -> None:
        given = {"total": total, "input": input, "output": output}
        self.limits = {name: checked.whole(name, most, at_least=1) for name, most in given.items() if most is not None}
        if not self.limits:
            raise ConfigurationError("TokenUsage needs a number: total=, input= or output=")

    def begin(self) -> Look:
        def look(view: View) -> str | None:
            usage = view.usage
            used = {name: getattr(usage, name) for name in self.limits}
            return next((f"{used[name]} tokens" for name, most in self.limits.items() if used[name] >= most), None)

        return look

    def __repr__(self) -> str:
        return f"TokenUsage({', '.join(f'{name}={most}' for name, most in self.limits.items())})"


class Timeout(Termination):
    """After so many seconds of the run, also in the middle of a turn. The team completes, with what it has.

    (`run(timeout=…)` stops it: the run is then cancelled.) Raises `ConfigurationError`.
    """

    def __init__(self, after: float) -> None:
        self.after = seconds("after", after) or 0.0

    @property
    def times(self) -> tuple[float, ...]:
        return (self.after,)

    def begin(self) -> Look:
        return lambda view: f"{self.after:g} seconds" if view.elapsed >= self.after else None

    def __repr__(self) -> str:
        return f"Timeout({self.after:g})"


class External(Termination):
    """When somebody says so: `set()`, from any thread or signal handler, also in the middle of a turn.

    It is a token: all runs of all teams that have this very object end, also those that begin later, as with any
    token. For one run alone, give that run's team its own: `team.until(External() | …)`. `token`: one that is there
    already. Raises `ConfigurationError` for what is none.
    """

    def __init__(self, token: CancellationToken | None = None) -> None:
        if token is not None and not isinstance(token, CancellationToken):
            raise ConfigurationError(f"an External is made of a CancellationToken, not of {token!r}")
        self.token = CancellationToken() if token is None else token

    def set(self, message: str | None = None) -> None:
        """Ends the teams that have it. Never blocks, never raises."""
        self.token.cancel(message)

    @property
    def tokens(self) -> tuple[CancellationToken, ...]:
        return (self.token,)

    def begin(self) -> Look:
        def look(view: View) -> str | None:
            request = self.token.cancellation
            return request and (request.message or "told from outside")

        return look

    def __repr__(self) -> str:
        return f"External({self.token!r})"


class Function(Termination):
    """When `fn(view)` says so: a plain function, asked in a thread after each turn; see `View`.

    It returns True, a text that says why, or something false. `inside`: also ask it at each piece of what is being
    said, many times a second: then it is called on the run's loop, and must not block. One that raises fails the team.
    It is shared by all runs. Raises `ConfigurationError` for no function.
    """

    def __init__(self, fn: Callable[[View], object], *, inside: bool = False) -> None:
        self.fn = checked.plain_function("what a Function is made of", fn)
        self.reads = bool(inside)
        self.blocks = not self.reads

    def begin(self) -> Look:
        return self._ask if self.reads else self._look_after_turns()

    def _ask(self, view: View) -> str | None:
        said = self.fn(view)
        name = getattr(self.fn, "__name__", "a function")
        return said if isinstance(said, str) and said else f"{name} has said so" if said else None

    def _look_after_turns(self) -> Look:
        """Other terminations beside it are looked at in between, on the loop: its last answer holds until then."""
        asked_at: tuple[int, int] | None = None
        said: str | None = None

        def look(view: View) -> str | None:
            nonlocal asked_at, said
            now = len(view.turns), len(view.messages)
            if now != asked_at:
                asked_at, said = now, self._ask(view)
            return said

        return look

    def __repr__(self) -> str:
        return f"Function({getattr(self.fn, '__qualname__', self.fn)!r})"
