"""A docstring, taken apart for the model."""

from __future__ import annotations

import pytest

from halter.tools.docstring import Described, described


def test_googles_form_gives_the_text_and_each_argument() -> None:
    """Types in parentheses, stars and continuation lines included; the other sections are not shown."""
    found = described(
        """Finds flights.

        Only direct ones.

        Args:
            origin (str): Where from.
            when (datetime.date, optional): Which day;
                today, if it is left out.
            **rest: Whatever else.

        Returns:
            The flights: a list.

        Raises:
            LookupError: There are none.
        """
    )
    assert found.text == "Finds flights.\n\nOnly direct ones."
    assert found.arguments == {
        "origin": "Where from.",
        "when": "Which day; today, if it is left out.",
        "rest": "Whatever else.",
    }


def test_sphinxs_form_gives_the_same() -> None:
    """With a type before the name or without; other fields end an argument."""
    found = described(
        """Finds flights.

        :param str origin: Where from.
        :param when: Which day;
            today, if it is left out.
        :type when: date
        :returns: The flights.
        """
    )
    assert found == Described(
        "Finds flights.", {"origin": "Where from.", "when": "Which day; today, if it is left out."}
    )


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_no_docstring_is_no_text(docstring: str | None) -> None:
    """Nothing is made up."""
    assert described(docstring) == Described("", {})


def test_a_colon_in_the_text_begins_no_section() -> None:
    """Only the names of sections do, alone on their line."""
    found = described("Do this:\n    first: look\n    second: leap\n\nNote that Args: is a word.")
    assert found.arguments == {}
    assert "second: leap" in found.text


def test_deeper_lines_that_look_like_arguments_belong_to_the_argument() -> None:
    """A list of options inside a description is no list of arguments."""
    found = described("X.\n\nArgs:\n    mode: How:\n        fast: at once\n        slow: later\n    n: How often.")
    assert found.arguments == {"mode": "How: fast: at once slow: later", "n": "How often."}
