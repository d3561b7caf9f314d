"""What `halter serve` is told to serve: a file, a module, or one name in it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from halter.core.runnable import Runnable
from halter.errors import ConfigurationError


def load_runnables(target: str) -> dict[str, Runnable[Any]]:
    """Loads the runnables behind `app.py`, `app.py:name`, `package.module` or `package.module:name`.

    Args:
        target: a file or a module; behind a colon the name of one runnable. Without it, every public name of the
            module that is something that runs is served.

    Returns:
        The runnables by their own names.

    Raises:
        ConfigurationError: if there is no such file, module or name, or nothing in it that runs. What the module
            raises while it is imported goes on.
    """
    where, _, name = target.partition(":")
    module = _module(where)
    if name:
        return {found.name: found for found in [_named(module, name, where)]}
    found: list[Runnable[Any]] = [
        value for key, value in vars(module).items() if not key.startswith("_") and isinstance(value, Runnable)
    ]
    served: dict[str, Runnable[Any]] = {}
    for runnable in found:
        if served.setdefault(runnable.name, runnable) is not runnable:
            raise ConfigurationError(
                f"{where} has two runnables named {runnable.name!r}: give one of them another name=, "
                f"or serve one with {where}:variable"
            )
    if not served:
        raise ConfigurationError(f"{where} has nothing to serve: no public variable of it is an agent, crew or flow")
    return served


def _named(module: ModuleType, name: str, where: str) -> Runnable[Any]:
    found = getattr(module, name, None)
    if isinstance(found, Runnable):
        return found  # pyright: ignore[reportUnknownVariableType]
    if found is not None:
        raise ConfigurationError(f"{name!r} in {where} is {type(found).__name__}, which does not run")
    runnables = [key for key, value in vars(module).items() if isinstance(value, Runnable)]
    near = difflib.get_close_matches(name, runnables, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(sorted(runnables)) or 'nothing that runs'}"
    raise ConfigurationError(f"{where} has no {name!r}{hint}")


def _module(where: str) -> ModuleType:
    path = Path(where)
    if path.suffix == ".py" or path.is_file():
        return _from_file(path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(error.name + ".")):
            raise ConfigurationError(f"there is no module {where!r} here, and no file of this name") from error
        raise


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {str(path)!r}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
