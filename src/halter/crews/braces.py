"""Names in braces, and what a run of a crew is given for them.

1. `{name}` is filled: a letter or `_`, then letters, digits, `_` and `-`. 2. `{{name}}` stays, as `{name}`. 3. All
other braces are text, so that JSON can stand in a description as it is. 4. What is filled in is not looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Any, cast

import msgspec

from halter.core.context import RunContext
from halter.errors import ConfigurationError
from halter.parts import as_json

_NAME = r"[^\W\d][\w-]*"
_BRACES = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")


class Inputs(dict[str, str]):
    """What one run fills its braces with."""


def names_in(texts: Iterable[str]) -> set[str]:
    """The names that these texts want to be filled."""
    return {found[2] for text in texts for found in _BRACES.finditer(text) if found[2]}


def fill(text: str, inputs: Inputs) -> str:
    """The text with its braces filled."""
    return _BRACES.sub(lambda found: inputs[found[2]] if found[2] else f"{{{found[1]}}}", text)


def as_it_is(text: str) -> str:
    """The text, so written that filling it gives it back."""
    return _BRACES.sub(lambda found: f"{{{found[0]}}}", text)


def read_inputs(given: Any, names: Set[str]) -> Inputs:
    """What `run()` was given for exactly these names: a mapping; a text, if there is one name; nothing, if none.

    A text is filled in as it is, anything else as JSON. Raises `ConfigurationError` for a name that is missing or not
    wanted, and for a value that has no form in JSON.
    """
    wanted = ", ".join(f"{{{name}}}" for name in sorted(names)) or "none: it has no names in braces"
    if given is None:
        given = {}
    elif isinstance(given, str) and len(names) == 1:
        given = dict.fromkeys(names, given)
    elif not isinstance(given, Mapping):
        raise ConfigurationError(f"a crew's inputs are a mapping, not {type(given).__name__}; it takes {wanted}")
    inputs = Inputs({str(name): _as_filled(value) for name, value in cast("Mapping[Any, Any]", given).items()})
    if missing := names - inputs.keys():
        raise ConfigurationError(f"the inputs lack {', '.join(sorted(missing))}; the crew takes {wanted}")
    if unknown := inputs.keys() - names:
        raise ConfigurationError(f"no text of the crew has {', '.join(sorted(unknown))} in braces; it takes {wanted}")
    return inputs


def inputs_of(ctx: RunContext) -> Inputs:
    """The inputs of the crew that this run belongs to; of several, the nearest. None of them: nothing is given."""
    above = (run.options.input for run in ctx._execution.ancestors())
    return next((given for given in above if isinstance(given, Inputs)), Inputs())


def _as_filled(value: Any) -> str:
    text = as_json(value)
    if isinstance(value, str) or not text.startswith('"'):
        return text
    return msgspec.json.decode(text, type=str)  # a date, a decimal, an id: without JSON's quotes
