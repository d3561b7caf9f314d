"""The same bytes, cut anywhere: a decoder must not care. A failure names the smallest cut that shows it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from halter.testing.failures import said

T = TypeVar("T")
Cut = tuple[int, ...]

_NOT_GIVEN: Final = object()


def split_sweep(
    decode: Callable[[list[bytes]], T],
    data: bytes,
    *,
    expected: Any = _NOT_GIVEN,
    every: int | None = None,
    cuts: int = 1000,
    seed: int = 0,
) -> int:
    """Assert that `decode` gives the same value however `data` is cut; return how many cuts were tried.

    `decode`: takes a list of non-empty chunks (one, for the whole), returns anything with `==`. Tried are:
    two parts, cut at every `every`-th byte (None: at each byte, or at about 4,096 places of longer data); one
    byte at a time; `cuts` random cuts into several parts, from `seed`. `expected`: what the whole must give.

    Raises `AssertionError` that names the smallest failing cut found; what `decode` raises on the whole goes
    on.
    """
    whole = decode([data])
    if expected is not _NOT_GIVEN and whole != expected:
        raise AssertionError(f"in one piece: {whole!r}, expected {expected!r}")
    count = 0
    for cut in _cuts(len(data), every, cuts, random.Random(seed)):
        if problem := _difference(decode, data, cut, whole):
            cut = _shrink(lambda fewer: _difference(decode, data, fewer, whole) is not None, cut)
            problem = _difference(decode, data, cut, whole) or problem
            raise AssertionError(f"{_show(data, cut)}: {said(problem)}") from problem
        count += 1
    return count


def _cuts(size: int, every: int | None, count: int, source: random.Random) -> Iterator[Cut]:
    stride = -(-size // 4096) if every is None else every
    yield from ((place,) for place in range(1, size, stride or 1))
    if size > 2:
        yield tuple(range(1, size))
        for _ in range(count):
            parts = source.randint(2, min(size - 1, 32))
            yield tuple(sorted(source.sample(range(1, size), parts)))


def _chunks(data: bytes, cut: Cut) -> list[bytes]:
    return [data[start:end] for start, end in zip((0, *cut), (*cut, len(data)), strict=True)]


def _difference(decode: Callable[[list[bytes]], Any], data: bytes, cut: Cut, whole: Any) -> Exception | None:
    try:
        value = decode(_chunks(data, cut))
    except Exception as error:
        return error
    return None if value == whole else AssertionError(f"{value!r}, in one piece: {whole!r}")


def _shrink(fails: Callable[[Cut], bool], cut: Cut) -> Cut:
    """The cut without the places that do not matter; long ones (one byte at a time) stay as they are."""
    for place in cut if len(cut) <= 100 else ():
        fewer = tuple(other for other in cut if other != place)
        if fewer and fails(fewer):
            cut = fewer
    return cut


def _show(data: bytes, cut: Cut) -> str:
    places = f"cut at {list(cut)}" if len(cut) <= 32 else f"cut into {len(cut) + 1} parts"
    around = [f"…{data[max(0, at - 10) : at]!r} | {data[at : at + 10]!r}…" for at in cut[:3]]
    return f"{places} ({', '.join(around)})"
