"""Embeddings: near is what points the same way; what an `embed` function returns is looked at."""

from __future__ import annotations

import math
from typing import Any

import pytest

from halter.errors import UsageError
from halter.facts.nearness import nearest, unit, units

from .parts import fact


def test_vectors_have_the_length_one() -> None:
    assert unit([3, 4]) == (0.6, 0.8)
    assert unit([0, 0]) == (0.0, 0.0)
    assert unit([math.inf, 1.0]) == (0.0, 0.0)
    assert unit([math.nan, 1.0]) == (0.0, 0.0)


def test_the_nearest_come_first_and_those_that_point_elsewhere_not_at_all() -> None:
    facts = [
        fact("far", embedding=unit((0.1, 1.0))),
        fact("near", embedding=unit((1.0, 0.1))),
        fact("opposite", embedding=unit((-1.0, 0.0))),
        fact("of another model", embedding=unit((1.0, 0.0, 0.0))),
        fact("bare"),
    ]
    assert [each.text for each in nearest(facts, (1.0, 0.0), 5)] == ["near", "far"]
    assert [each.text for each in nearest(facts, (1.0, 0.0), 1)] == ["near"]


@pytest.mark.parametrize("returned", [[[1.0]], [[1.0], [1.0, 2.0]], [1.0, 2.0], None, [["a"], ["b"]], [None, None]])
def test_what_is_no_vector_for_each_text_is_refused(returned: Any) -> None:
    with pytest.raises(UsageError, match="embed must return"):
        units(returned, 2)
