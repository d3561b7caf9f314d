"""What is known, to look at and to correct."""

from __future__ import annotations

from typing import Any

import pytest

from halter.errors import ConfigurationError, UsageError
from halter.sessions import FactBook, FactScope

from .parts import ANN, Kept, fact

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def book(kept: Kept) -> FactBook:
    return kept.chats.facts


async def test_what_is_added_is_listed_and_found(book: FactBook) -> None:
    tea = await book.add("ann", " Likes\n  tea. ")
    cat = await book.add("ann", "Has a cat.")
    await book.add("bob", "Likes tea.")
    assert tea.text == "Likes tea."
    assert tea.created_at == tea.updated_at > 0
    assert await book.list("ann") == [cat, tea]
    assert await book.list("ann", limit=1) == [cat]
    assert await book.find("ann", "Which tea?") == [tea]
    assert await book.find("ann", "zebra") == []


async def test_a_fact_is_said_otherwise_and_loses_the_embedding_of_its_old_words(kept: Kept, book: FactBook) -> None:
    await kept.put(fact("Likes tea.", "1", session_id="s", embedding=(1.0, 0.0), created_at=5.0, recalled_at=6.0))
    edited = await book.edit(ANN, "1", "Likes green tea.")
    assert await book.list(ANN) == [edited]
    assert (edited.text, edited.embedding) == ("Likes green tea.", None)
    assert (edited.session_id, edited.created_at, edited.recalled_at) == ("s", 5.0, 6.0)
    assert edited.updated_at > 6.0


async def test_a_fact_is_forgotten_once(book: FactBook) -> None:
    tea = await book.add("ann", "Likes tea.")
    assert await book.forget("ann", tea.id)
    assert not await book.forget("ann", tea.id)
    assert await book.list("ann") == []


async def test_all_of_one_is_forgotten_and_nothing_of_others(book: FactBook) -> None:
    for scope in ("ann", "ann", "bob"):
        await book.add(scope, "Likes tea.")
    assert await book.forget_all("ann") == 2
    assert await book.forget_all("ann") == 0
    assert len(await book.list("bob")) == 1


async def test_the_facts_of_others_are_out_of_reach(book: FactBook) -> None:
    tea = await book.add("ann", "Likes tea.")
    with pytest.raises(UsageError, match="user 'bob' has no fact"):
        await book.edit("bob", tea.id, "Hates tea.")
    assert not await book.forget("bob", tea.id)
    assert await book.list("ann") == [tea]


@pytest.mark.parametrize("text", ["", " \n ", "x" * 501, 5, None])
async def test_what_is_no_fact_is_refused(book: FactBook, text: Any) -> None:
    tea = await book.add("ann", "Likes tea.")
    with pytest.raises(ConfigurationError):
        await book.add("ann", text)
    with pytest.raises(ConfigurationError):
        await book.edit("ann", tea.id, text)
    assert await book.list("ann") == [tea]


@pytest.mark.parametrize("scope", ["", 5, None, "x" * 257, FactScope("user", ""), FactScope("dog", "ann")])  # pyright: ignore
async def test_what_is_no_scope_is_refused(book: FactBook, scope: Any) -> None:
    calls = (book.list(scope), book.find(scope, "x"), book.add(scope, "x"), book.edit(scope, "1", "x"))
    for call in (*calls, book.forget(scope, "1"), book.forget_all(scope)):
        with pytest.raises(ConfigurationError):
            await call


async def test_limits_are_whole_numbers(book: FactBook) -> None:
    with pytest.raises(ConfigurationError):
        await book.list("ann", limit=-1)
    with pytest.raises(ConfigurationError):
        await book.find("ann", "tea", limit=-1)


def test_it_says_where_it_is(kept: Kept) -> None:
    assert repr(kept.chats.facts) == f"<FactBook in {kept.store!r}>"
