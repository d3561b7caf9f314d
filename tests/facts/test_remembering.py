"""An agent with a memory: what it is told at the beginning of a run, and what is learned once one has completed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halter import Agent, RunContext, RunStatus, events, runnable, runtime
from halter.errors import SessionsUnavailable
from halter.facts import Facts, Learned
from halter.facts.learning import EMBEDDING
from halter.facts.recalled import BEGIN
from halter.hooks import Hooks
from halter.messages import Message
from halter.models.scripted import Scripted, calls
from halter.sessions.records import Checkpoint, FactScope, Session

from .parts import ANN, Asked, Kept, changes, fact, learned

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("quiet")]


def told(*facts: str) -> str:
    return "\n- ".join((BEGIN, *facts)) + "]\n\n"


def agent_of(*script: Any, learns: Scripted | None = None, pace: float = 0.0, **options: Any) -> Agent[str]:
    memory = Facts(learns or Scripted(changes()), **options)
    return Agent(Scripted(*(script or ("hello",)), pace=pace), memory=memory)


async def seen(agent: Agent[Any], input: str, kept: Kept, session: str = "ann") -> list[Any]:
    """What the run tells of its memory."""
    run = agent.run(input, session=kept.session(session))
    found = [event async for event in run if isinstance(event, events.Custom)]
    await learned()
    return [(event.name, event.data) for event in found if event.name != "memory.learning"]


# --- recalling ----------------------------------------------------------------------------------------------


async def test_what_was_said_in_one_conversation_is_known_in_another(kept: Kept) -> None:
    for session in ("monday", "tuesday"):
        await kept.store.create(Session(id=session, user="ann"))
    model = Asked("Hello Ann.", changes("Is called Ann.", "Likes tea."), "Tea.")
    agent = Agent(model, memory=Facts())
    await agent.run("I am Ann, and I like tea.", session=kept.session("monday"))
    [result] = await learned()
    assert result.output == Learned(messages=2, put=2)
    assert await kept.known(FactScope("user", "ann")) == ["Is called Ann.", "Likes tea."]
    await agent.run("What should I drink?", session=kept.session("tuesday"))
    assert model.requests[-1].messages[-1].text == told("Likes tea.", "Is called Ann.") + "What should I drink?"
    await learned()
    assert [message.text for message in await kept.said("tuesday")] == ["What should I drink?", "Tea."]


async def test_what_is_recalled_stands_at_one_place_all_through_a_run(kept: Kept) -> None:
    await kept.put(fact("Likes tea."))
    model = Asked(calls("look"), calls("look"), "Tea.", changes())

    def look() -> str:
        return "milk"

    agent = Agent(model, instructions="Be brief.", tools=[look], memory=Facts())
    await agent.run("And to drink?", session=kept.session("ann"))
    await learned()
    first, second, third = (request.messages for request in model.requests[:3])
    assert first[1].text == told("Likes tea.") + "And to drink?"
    assert second[: len(first)] == first
    assert third[: len(second)] == second


async def test_the_next_request_begins_as_the_last_one_did(kept: Kept) -> None:
    """What a provider's prompt cache lives on: instructions and history are not touched by what is recalled."""
    model = Asked("one", changes("Likes tea."), "two", changes(), "three", changes())
    agent = Agent(model, instructions="Be brief.", memory=Facts())
    for input in ("first", "second", "third"):
        await agent.run(input, session=kept.session("ann"))
        await learned()
    second, third = (model.requests[at].messages for at in (2, 4))
    assert [message.text for message in third[:4]] == ["Be brief.", "first", "one", "second"]
    assert second[:3] == third[:3]
    assert second[3].text == told("Likes tea.") + "second"


async def test_the_facts_that_fit_come_first_and_only_so_many(kept: Kept) -> None:
    await kept.put(*(fact(f"Thing number {number}.", updated_at=float(number)) for number in range(20)))
    await kept.put(fact("Has a cat called Tom.", updated_at=0.5))
    [(name, data)] = await seen(agent_of(recall=3), "How is my cat?", kept)
    assert name == "memory.recalled"
    assert data == {
        "kind": "session",
        "scope": "ann",
        "facts": ["Has a cat called Tom.", "Thing number 19.", "Thing number 18."],
    }


async def test_of_somebody_who_has_told_little_all_is_known(kept: Kept) -> None:
    await kept.put(fact("Is called Ann.", updated_at=1.0), fact("Likes tea.", updated_at=2.0))
    [(_, data)] = await seen(agent_of(recall=2), "Who am I?", kept)
    assert data["facts"] == ["Likes tea.", "Is called Ann."]


async def test_recalled_facts_are_noted_so_that_they_are_kept(kept: Kept) -> None:
    await kept.put(fact("Likes tea."), fact("Has a cat."))
    await seen(agent_of(recall=1), "tea?", kept)
    recalled = {each.text: each.recalled_at for each in await kept.store.facts(ANN)}
    assert recalled["Has a cat."] == 0.0 < recalled["Likes tea."]


async def test_without_recalling_it_only_learns(kept: Kept) -> None:
    await kept.put(fact("Likes tea."))
    assert await seen(agent_of(recall=0, learns=Scripted(changes("Has a cat."))), "hi", kept) == []
    assert await kept.known() == ["Likes tea.", "Has a cat."]


async def test_a_run_without_a_session_neither_recalls_nor_learns() -> None:
    assert (await agent_of().run("hi")).text == "hello"
    assert runtime().runs(tag="memory") == []


async def test_a_scope_of_your_own(kept: Kept) -> None:
    def scope(ctx: RunContext) -> str | None:
        return ctx.context

    agent = agent_of(learns=Scripted(changes("Likes tea.")), scope=scope)
    await agent.run("hi", session=kept.session("one"), context="the whole team")
    await learned()
    assert await kept.known(FactScope("custom", "the whole team")) == ["Likes tea."]
    await agent.run("hi", session=kept.session("one"), context=None)
    assert runtime().runs(tag="memory") == []


@pytest.mark.scenario("K101")
async def test_a_session_without_a_user_shares_nothing_with_the_user_of_its_name(kept: Kept) -> None:
    await kept.chats.create("hers", user="ann")
    hers, nobodys = Asked(changes("Has cancer.")), Asked(changes("Likes tea."))
    await agent_of(learns=hers).run("I have cancer.", session=kept.session("hers"))
    await learned()
    assert await seen(agent_of(learns=nobodys), "Who am I?", kept) == []
    assert [known for known, _ in nobodys.data] == [[]]
    assert await kept.known() == ["Likes tea."]
    assert await kept.known(FactScope("user", "ann")) == ["Has cancer."]


@pytest.mark.scenario("K101")
async def test_a_name_that_a_function_gives_is_no_user_s(kept: Kept) -> None:
    await kept.chats.facts.add("ann", "Likes tea.")
    assert await seen(agent_of(scope=lambda _: "ann"), "tea?", kept) == []
    [(_, data)] = await seen(agent_of(scope=lambda _: FactScope("user", "ann")), "tea?", kept)
    assert data == {"kind": "user", "scope": "ann", "facts": ["Likes tea."]}


@pytest.mark.scenario("K101")
@pytest.mark.parametrize("name", ["Ann", "ann ", "Jos\u00e9", "Jose\u0301"])
async def test_users_are_told_apart_by_every_character(kept: Kept, name: str) -> None:
    for number, user in enumerate(["ann", "Ann", "ann ", "Jos\u00e9", "Jose\u0301"]):
        await kept.chats.facts.add(user, f"Is number {number}.")
        await kept.chats.create(f"{number}", user=user)
    assert len(await kept.chats.facts.list(name)) == 1
    assert len(await kept.chats.list(user=name)) == 1


async def test_two_scopes_on_one_session_each_learn_from_all_of_it(kept: Kept) -> None:
    of_her, of_the_house = Asked(changes("Likes tea."), changes()), Asked(changes("Has a cat."))
    for text, learns, scope in (
        ("first", of_her, None),
        ("second", of_the_house, lambda _: "the house"),
        ("third", of_her, None),
    ):
        agent = Agent("scripted:hello", memory=Facts(learns, scope=scope))
        await agent.run(text, session=kept.session("ann"))
        await learned()
    assert (await kept.known(), await kept.known(FactScope("custom", "the house"))) == (["Likes tea."], ["Has a cat."])
    heard = [[text for _, text in said] for learner in (of_her, of_the_house) for _, said in learner.data]
    assert heard == [["first", "hello"], ["second", "hello", "third", "hello"], ["first", "hello", "second", "hello"]]
    assert await kept.store.known("ann") == {ANN: 6, FactScope("custom", "the house"): 4}


async def test_a_scope_that_is_no_text_fails_the_run(kept: Kept) -> None:
    def scope(_: RunContext) -> Any:
        return 5

    run = agent_of(scope=scope).run("hi", session=kept.session("one"))
    assert "must be text" in str((await run.finished()).error)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_run_goes_on_without_what_it_cannot_recall(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def facts(*_: Any, **__: Any) -> Any:
        if how == "hangs":
            await asyncio.sleep(3600)
        raise SessionsUnavailable("the database is gone")

    with monkeypatch.context() as patch:
        patch.setattr(kept.store, "facts", facts)
        [(name, data)] = await seen(agent_of(), "hi", kept)
    assert name == "memory.unavailable"
    assert data == {
        "kind": "session",
        "scope": "ann",
        "why": "the database is gone" if how == "fails" else "TimeoutError",
    }
    assert [message.text for message in await kept.said()] == ["hi", "hello"]


# --- learning -----------------------------------------------------------------------------------------------


async def test_the_model_sees_what_is_new_and_what_is_known(kept: Kept) -> None:
    learner = Asked(
        changes("Likes tea.", "Lives in Rome."), changes("Has a cat.", replace=[([1, 2], "Lives in Oslo.")])
    )
    agent = agent_of(learns=learner)
    for input in ("first", "second"):
        await agent.run(input, session=kept.session("ann"))
        await learned()
    assert learner.data == [
        ([], [("user", "first"), ("assistant", "hello")]),
        (["Lives in Rome.", "Likes tea."], [("user", "second"), ("assistant", "hello")]),
    ]
    assert await kept.known() == ["Lives in Oslo.", "Has a cat."]


@pytest.mark.parametrize("how", ["stopped", "failed"])
async def test_a_turn_that_did_not_complete_teaches_nothing_until_one_has(kept: Kept, how: str) -> None:
    class Failing(Hooks):
        def after_run(self, ctx: RunContext, output: Any) -> None:
            if how == "failed":
                raise ValueError("no")

    learner = Asked(changes("Is called Ann."))
    memory = Facts(learner)
    agent = Agent(Scripted("one two three", pace=1.0), memory=memory, hooks=Failing())
    run = agent.run("I am Ann.", session=kept.session("ann")).start()
    await asyncio.sleep(2.5)
    if how == "stopped":
        run.cancel()
    assert (await run.finished()).status is RunStatus(how.replace("stopped", "cancelled"))
    assert await learned() == []
    assert (await kept.store.known("ann")).get(ANN, 0) == 0
    await Agent("scripted:Yes.", memory=memory).run("And now?", session=kept.session("ann"))
    await learned()
    [(_, said)] = learner.data
    whole = [("assistant", "one two three")] if how == "failed" else []  # its answer was, before it failed
    assert said == [("user", "I am Ann."), *whole, ("user", "And now?"), ("assistant", "Yes.")]


async def test_an_answer_that_does_not_fit_is_asked_for_again(kept: Kept) -> None:
    learner = Asked("Sure: Likes tea.", changes("Likes tea."))
    await seen(agent_of(learns=learner), "hi", kept)
    assert await kept.known() == ["Likes tea."]
    assert "does not fit" in learner.requests[1].messages[-1].text


async def test_what_could_not_be_learned_is_caught_up_by_the_next(kept: Kept) -> None:
    learner = Asked("no", "no", changes("Likes tea."))
    agent = agent_of(learns=learner)
    await agent.run("first", session=kept.session("ann"))
    [failed] = await learned()
    assert failed.error is not None
    assert (await kept.known(), (await kept.store.known("ann")).get(ANN, 0)) == ([], 0)
    await seen(agent, "second", kept)
    assert await kept.known() == ["Likes tea."]
    assert [text for _, text in learner.data[-1][1]] == ["first", "hello", "second", "hello"]


async def test_a_long_past_is_caught_up_in_pieces(kept: Kept) -> None:
    past = [Message.user(f"{number} " + "x" * 5_000) for number in range(30)]
    await kept.store.create(Session(id="ann"), past)
    learner = Asked(changes())
    agent = agent_of(learns=learner)
    await agent.run("hi", session=kept.session("ann"))
    await learned()
    assert len(learner.requests) == 4
    assert (await kept.store.known("ann")).get(ANN, 0) == 16
    for _ in range(2):
        await seen(agent, "hi", kept)
    assert (await kept.store.known("ann")).get(ANN, 0) == len(await kept.said()) == 36
    heard = [text.partition(" ")[0] for _, said in learner.data for _, text in said]
    assert heard[:30] == [str(number) for number in range(30)]


async def test_what_was_compacted_is_learned_from_as_it_was_said(kept: Kept) -> None:
    said = [
        Message.user("I am Ann."),
        Message.assistant("Hello."),
        Message.user("I like tea."),
        Message.assistant("Ah."),
    ]
    summary = Checkpoint(upto=3, messages=(Message.user("They have said hello."),), run_id="r")
    await kept.store.create(Session(id="ann"), said, summary)
    await kept.store.change_facts(ANN, session_id="ann", known_upto=1)
    learner = Asked(changes())
    await seen(agent_of(learns=learner), "hi", kept)
    assert [text for _, text in learner.data[0][1]] == ["Hello.", "I like tea.", "Ah.", "hi", "hello"]
    await seen(agent_of(learns=learner), "again", kept)
    assert [text for _, text in learner.data[1][1]] == ["again", "hello"]


async def test_a_turn_that_is_under_way_is_not_learned_from(kept: Kept) -> None:
    learner = Asked(changes(), pace=0.5)
    await agent_of(learns=learner).run("first", session=kept.session("ann"))
    async with agent_of("word " * 20, learns=learner, pace=1.0).run("second", session=kept.session("ann")) as run:
        await learned()
        assert not run.is_done
    assert [text for _, said in learner.data for _, text in said] == ["first", "hello"]


async def test_beyond_the_most_that_is_kept_the_least_used_are_forgotten(kept: Kept) -> None:
    await kept.put(fact("old", updated_at=1.0), fact("recalled", recalled_at=5.0))
    await seen(agent_of(learns=Scripted(changes("new")), most=2, recall=0), "hi", kept)
    assert set(await kept.known()) == {"recalled", "new"}


async def test_what_somebody_edits_while_it_is_learned_stays_edited(kept: Kept) -> None:
    await kept.put(fact("Likes tea.", "1", updated_at=2.0), fact("Has a cat.", "2", updated_at=1.0))
    answer = changes(replace=[([1], "Likes coffee."), ([2], "Has two cats.")])
    await agent_of(learns=Scripted(answer, pace=1.0)).run("hi", session=kept.session("ann"))
    await asyncio.sleep(0.5)
    await kept.store.change_facts(ANN, put=[fact("Likes green tea.", "1", updated_at=9.0)], forget=["2"])
    await learned()
    assert await kept.known() == ["Likes green tea."]


async def test_what_somebody_adds_while_it_is_learned_is_not_added_twice(kept: Kept) -> None:
    await agent_of(learns=Scripted(changes("Likes tea."), pace=1.0)).run("hi", session=kept.session("ann"))
    await asyncio.sleep(0.5)
    await kept.put(fact("likes tea"))
    await learned()
    assert await kept.known() == ["likes tea"]


async def test_a_session_that_is_deleted_meanwhile_teaches_nothing(kept: Kept) -> None:
    await agent_of(learns=Scripted(changes("Likes tea."), pace=1.0)).run("hi", session=kept.session("ann"))
    await asyncio.sleep(0.5)
    await kept.store.delete("ann")
    await learned()
    assert await kept.known() == []


@pytest.mark.parametrize("how", ["rewound", "deleted and begun anew"])
async def test_what_is_taken_back_meanwhile_teaches_nothing_and_what_comes_next_does(kept: Kept, how: str) -> None:
    learner = Asked(changes("Has a secret."), changes("Likes tea."), pace=1.0)
    await agent_of(learns=learner).run("my secret", session=kept.session("ann"))
    await asyncio.sleep(0.5)
    if how == "rewound":
        await kept.chats.rewind("ann", 0)
    else:
        await kept.chats.delete("ann")
        await kept.chats.create("ann")
    await learned()
    assert await kept.known() == []
    await agent_of(learns=learner).run("I like tea.", session=kept.session("ann"))
    await learned()
    assert await kept.known() == ["Likes tea."]


async def test_two_that_learn_of_one_person_do_it_one_after_the_other(kept: Kept) -> None:
    for session in ("monday", "tuesday"):
        await kept.store.create(Session(id=session, user="ann"))
    learner = Asked(changes("Likes tea."), changes(replace=[([1], "Likes green tea.")]), pace=1.0)
    for session in ("monday", "tuesday"):
        await agent_of(learns=learner).run(session, session=kept.session(session))
    assert len(runtime().runs(tag="memory")) == 2
    await learned()
    assert [known for known, _ in learner.data] == [[], ["Likes tea."]]
    assert await kept.known(FactScope("user", "ann")) == ["Likes green tea."]


async def test_what_another_process_has_learned_meanwhile_is_not_learned_twice(kept: Kept) -> None:
    await agent_of(learns=Scripted(changes("Likes tea."), pace=1.0)).run("hi", session=kept.session("ann"))
    await asyncio.sleep(0.5)
    await kept.store.change_facts(ANN, put=[fact("Drinks tea.")], session_id="ann", known_from=0, known_upto=2)
    [result] = await learned()
    assert result.output == Learned()
    assert await kept.known() == ["Drinks tea."]


async def test_an_agent_under_a_run_on_a_session_learns_when_that_has_completed(kept: Kept) -> None:
    learner = Asked(changes("Likes tea."))

    @runnable
    async def meeting(ctx: RunContext, input: str) -> str:
        ctx.say(Message.user(input))
        answer = (await agent_of("I will see.", learns=learner).run("What does she like?")).text
        await asyncio.sleep(5)
        ctx.say(Message.assistant(answer))
        return answer

    run = meeting.run("She likes tea.", session=kept.session("ann")).start()
    await asyncio.sleep(1)
    assert learner.requests == []
    await run
    await learned()
    assert [text for _, text in learner.data[0][1]] == ["She likes tea.", "I will see."]
    assert await kept.known() == ["Likes tea."]


# --- by meaning ---------------------------------------------------------------------------------------------

MEANINGS = {"drink": (1.0, 0.0, 0.1), "pet": (0.0, 1.0, 0.1)}
WORDS = {"tea": "drink", "thirsty": "drink", "cat": "pet", "dog": "pet"}


async def embed(texts: list[str]) -> list[tuple[float, ...]]:
    """Two meanings, by the words that have them."""
    words = ([WORDS[word] for word in WORDS if word in text] for text in texts)
    return [MEANINGS[each[0]] if each else (0.0, 0.0, 1.0) for each in words]


async def test_with_embeddings_facts_are_found_by_what_they_mean(kept: Kept) -> None:
    agent = agent_of(learns=Scripted(changes("Likes tea.", "Has a cat.", "Lives in Rome.")), embed=embed, recall=1)
    await seen(agent, "hi", kept)
    assert all(each.embedding is not None for each in await kept.store.facts(ANN))
    [(_, data)] = await seen(agent, "I am thirsty.", kept)
    assert data["facts"] == ["Likes tea."]
    [(_, data)] = await seen(agent, "My dog is ill.", kept)
    assert data["facts"] == ["Has a cat."]


async def test_facts_for_which_embedding_takes_too_long_are_known_without(kept: Kept) -> None:
    async def hangs(texts: list[str]) -> list[tuple[float, ...]]:
        await asyncio.sleep(3600)
        return []

    began = asyncio.get_running_loop().time()
    agent = agent_of(learns=Scripted(changes("Likes tea.")), embed=hangs, recall=0)
    await agent.run("hi", session=kept.session("ann"))
    [learning] = await learned()
    assert learning.is_completed
    assert asyncio.get_running_loop().time() - began == pytest.approx(EMBEDDING, abs=1.0)
    [tea] = await kept.store.facts(ANN)
    assert (tea.text, tea.embedding) == ("Likes tea.", None)


async def test_what_was_added_by_hand_is_found_by_its_words_and_gets_its_embedding_with_the_next_learning(
    kept: Kept,
) -> None:
    await kept.put(fact("Works in a library."), fact("Has a cat."), fact("Likes tea."))
    agent = agent_of(embed=embed, recall=1)
    [(_, data)] = await seen(agent, "Where is the library?", kept)
    assert data["facts"] == ["Works in a library."]
    assert all(each.embedding is not None for each in await kept.store.facts(ANN))


async def test_what_another_model_has_embedded_is_found_by_its_words_until_it_is_embedded_anew(kept: Kept) -> None:
    async def embed_otherwise(texts: list[str]) -> list[tuple[float, ...]]:
        return [(*vector, 0.0) for vector in await embed(texts)]

    await seen(agent_of(learns=Scripted(changes("Likes tea.", "Lives in Rome.")), embed=embed, recall=1), "hi", kept)
    agent = agent_of(learns=Asked(changes(), changes("Has a bike.")), embed=embed_otherwise, recall=1)
    [(_, data)] = await seen(agent, "Do I like tea?", kept)
    assert data["facts"] == ["Likes tea."]
    await seen(agent, "My bike is red.", kept)
    assert {len(each.embedding or ()) for each in await kept.store.facts(ANN)} == {4}
    [(_, data)] = await seen(agent, "I am thirsty.", kept)
    assert data["facts"] == ["Likes tea."]


async def test_what_somebody_forgets_or_edits_while_it_is_embedded_stays_so(kept: Kept) -> None:
    embedding, go_on = asyncio.Event(), asyncio.Event()

    async def slow(texts: list[str]) -> list[list[float]]:
        embedding.set()
        await go_on.wait()
        return [[1.0] for _ in texts]

    await kept.put(fact("A secret.", "1"), fact("Has a cat.", "2"))
    await agent_of(learns=Scripted(changes("Likes tea.")), embed=slow).run("hi", session=kept.session("ann"))
    await embedding.wait()
    await kept.chats.facts.forget(ANN, "1")
    await kept.chats.facts.edit(ANN, "2", "Has two cats.")
    go_on.set()
    await learned()
    assert sorted(await kept.known()) == ["Has two cats.", "Likes tea."]


async def test_what_gets_no_embedding_is_learned_all_the_same(kept: Kept) -> None:
    async def fails(texts: list[str]) -> list[list[float]]:
        raise ValueError("out of credit")

    await kept.put(fact("Has a cat."))
    agent = agent_of(learns=Scripted(changes("Likes tea.")), embed=fails, recall=1)
    await seen(agent, "hi", kept)
    assert await kept.known() == ["Has a cat.", "Likes tea."]
    [(name, data)] = await seen(agent, "hi", kept)
    assert (name, data["why"]) == ("memory.unavailable", "out of credit")


@pytest.mark.real_loop  # it is done in a thread
async def test_many_facts_are_compared_beside_the_loop(kept: Kept) -> None:
    wide = [0.0] * 10_000

    async def embed_widely(texts: list[str]) -> list[list[float]]:
        return [[1.0, *wide] if "tea" in text else [0.0, 1.0, *wide[1:]] for text in texts]

    agent = agent_of(
        learns=Scripted(changes("Likes tea.", *(f"Fact {n}." for n in range(8)))), embed=embed_widely, recall=1
    )
    await seen(agent, "hi", kept)
    [(_, data)] = await seen(agent, "tea?", kept)
    assert data["facts"] == ["Likes tea."]
