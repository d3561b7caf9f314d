"""What holds of a model's changes: whatever it writes, what is known stays whole, short and within bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from halter.facts.changes import MOST_CHANGES, Changes, Held, Replacement, beyond, held
from halter.sessions.records import Fact

from ..sizes import examples
from .parts import ANN, fact

NOW = 100.0
TEA, CAT, ROME = fact("Likes tea.", "1"), fact("Has a cat.", "2"), fact("Lives in Rome.", "3")
KNOWN = (TEA, CAT, ROME)


def made(changes: Changes, known: tuple[Fact, ...] = KNOWN, now: tuple[Fact, ...] | None = None) -> Held:
    return held(changes, known, known if now is None else now, scope=ANN, session_id="s", now=NOW)


def after(changes: Changes, known: tuple[Fact, ...] = KNOWN) -> list[str]:
    """All that is known then, by text."""
    made_of = made(changes, known)
    facts = {each.id: each for each in known if each.id not in made_of.forget}
    return [each.text for each in (facts | {each.id: each for each in made_of.put}).values()]


def test_what_is_added_belongs_to_the_scope_and_names_its_session() -> None:
    [new] = made(Changes(add=["Is  called\nAnn. "])).put
    assert (new.scope, new.session_id, new.text) == (ANN, "s", "Is called Ann.")
    assert new.created_at == new.updated_at == NOW


def test_facts_are_merged_into_the_first_of_them() -> None:
    merged = made(Changes(replace=[Replacement([2, 1], "Has a cat and likes tea.")]))
    [one] = merged.put
    assert (one.id, one.text, one.updated_at) == (CAT.id, "Has a cat and likes tea.", NOW)
    assert merged.forget == (TEA.id,)


def test_a_changed_fact_loses_the_embedding_of_its_old_words() -> None:
    known = (fact("Lives in Rome.", embedding=(1.0, 0.0)),)
    [one] = made(Changes(replace=[Replacement([1], "Lives in Oslo.")]), known).put
    assert one.embedding is None


def test_a_merge_into_the_words_of_one_only_forgets_the_others() -> None:
    assert made(Changes(replace=[Replacement([1, 2], TEA.text)])) == Held((), (CAT.id,))


def test_what_says_only_what_another_fact_says_is_forgotten() -> None:
    assert made(Changes(replace=[Replacement([1], "has a cat")])) == Held((), (TEA.id,))


def test_numbers_that_no_fact_has_change_nothing() -> None:
    assert made(Changes(forget=[0, -1, 4], replace=[Replacement([9], "Is new."), Replacement([], "Is new.")])) == Held()


def test_a_fact_is_dealt_with_once() -> None:
    changes = Changes(
        replace=[Replacement([1, 1], "Likes coffee."), Replacement([1], "Likes water.")], forget=[1, 2, 2]
    )
    assert after(changes) == ["Likes coffee.", "Lives in Rome."]


def test_what_is_known_already_is_not_added_however_it_is_written() -> None:
    assert made(Changes(add=["likes TEA", "Has a cat.", "Is tall.", "is tall!"])).put[0].text == "Is tall."
    assert len(made(Changes(add=["likes TEA", "Has a cat.", "Is tall.", "is tall!"])).put) == 1


def test_empty_and_endless_texts_are_dropped() -> None:
    assert (
        made(Changes(add=["", " \n", "x" * 501], replace=[Replacement([1], " "), Replacement([2], "x" * 501)]))
        == Held()
    )
    assert len(made(Changes(add=["x" * 500])).put) == 1


def test_a_flood_is_cut_off() -> None:
    assert len(made(Changes(add=[f"Fact {number}" for number in range(1000)])).put) == MOST_CHANGES


def test_what_was_edited_or_forgotten_meanwhile_stays_as_it_is() -> None:
    edited = fact("Likes green tea.", TEA.id)
    changes = Changes(replace=[Replacement([1], "Likes coffee."), Replacement([2], "Has two cats.")], forget=[3])
    assert made(changes, now=(edited, ROME)) == Held((), (ROME.id,))


def test_a_forgotten_fact_may_be_said_again() -> None:
    assert sorted(after(Changes(add=["Likes tea."], forget=[1]))) == sorted(each.text for each in KNOWN)


def test_beyond_the_most_that_is_kept_the_least_used_are_forgotten() -> None:
    known = (
        fact("old", updated_at=1.0),
        fact("recalled", updated_at=1.0, recalled_at=50.0),
        fact("edited", updated_at=40.0),
    )
    new = fact("new", created_at=NOW, updated_at=NOW)
    assert beyond(known, Held((new,)), 3) == Held((new,), ("old",))
    assert beyond(known, Held((new,), ("edited",)), 2) == Held((new,), ("edited", "old"))
    assert beyond(known, Held(), 3) == Held()


texts = st.sampled_from([*(each.text for each in KNOWN), "a", "b", "c.", "", "x" * 501]) | st.text(max_size=8)
numbers = st.integers(-2, 6)
answers = st.builds(
    Changes,
    add=st.lists(texts, max_size=6),
    replace=st.lists(st.builds(Replacement, facts=st.lists(numbers, max_size=4), by=texts), max_size=4),
    forget=st.lists(numbers, max_size=4),
)


@settings(max_examples=examples(60))
@given(answers, st.integers(1, 6))
def test_whatever_is_answered_each_fact_is_short_new_and_there_once(changes: Changes, most: int) -> None:
    made_of = beyond(KNOWN, made(changes), most)
    put, forget = [each.id for each in made_of.put], list(made_of.forget)
    assert len({*put, *forget}) == len(put) + len(forget)
    facts = {each.id: each for each in KNOWN if each.id not in forget} | {each.id: each for each in made_of.put}
    senses = [each.text.casefold().rstrip(".! ") for each in facts.values()]
    assert len(set(senses)) == len(senses) <= most
    assert all(0 < len(each.text) <= 500 and each.text == " ".join(each.text.split()) for each in facts.values())
    assert all(each.scope == ANN for each in facts.values())
