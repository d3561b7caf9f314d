"""`{names}` in the texts of a crew: what is filled, what stays, and what is an error before anything runs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halter import Agent
from halter.crews import Crew, Member, Task
from halter.crews.braces import Inputs, as_it_is, fill, names_in, read_inputs
from halter.errors import ConfigurationError
from halter.models.scripted import calls

from .people import Asked, member


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("On {topic}.", "On rivers."),
        ("{topic}{topic}", "riversrivers"),
        ("{{topic}} stays", "{topic} stays"),
        ('{"city": {"name": "Ulm", "tags": {}}}', '{"city": {"name": "Ulm", "tags": {}}}'),
        ('{"on": {topic}}', '{"on": rivers}'),
        ("{ topic }, {}, {0}, {a.b}, {topic!r}, {topic:>9}", "{ topic }, {}, {0}, {a.b}, {topic!r}, {topic:>9}"),
        ("an open { and a closed }", "an open { and a closed }"),
        ("{Straße}: {x-1_y}", "lang: dashed"),
    ],
)
def test_a_name_in_braces_is_filled_and_everything_else_is_text(text: str, filled: str) -> None:
    assert fill(text, Inputs({"topic": "rivers", "Straße": "lang", "x-1_y": "dashed"})) == filled


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    assert fill("{a} {b}", Inputs({"a": "{b}", "b": "{a}"})) == "{b} {a}"


@given(st.text(alphabet='{}ab "-1'))
def test_a_text_that_stands_for_itself_comes_back_unchanged(text: str) -> None:
    assert names_in((as_it_is(text),)) == set()
    assert fill(as_it_is(text), Inputs()) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (1.5, "1.5"),
        (True, "true"),
        (None, ""),
        (["a", {"b": 1}], '["a",{"b":1}]'),
        (date(2026, 5, 1), "2026-05-01"),
        (Decimal("1.20"), "1.20"),
        ('"quoted"', '"quoted"'),
    ],
    ids=str,
)
def test_a_value_is_filled_in_as_text_or_as_json(value: Any, text: str) -> None:
    assert read_inputs({"x": value}, {"x"}) == {"x": text}


def crew_with(model: Asked) -> Crew:
    agent = Member(model, role="{field} expert", goal="Know {topic}", backstory="Reads {field} only.")
    task = Task(description="Explain {topic}.", expected_output="One line on {topic}", agent=agent, name="explain")
    return Crew([task])


@pytest.mark.virtual_time
async def test_the_texts_of_tasks_and_members_are_filled_for_each_run_alone() -> None:
    model = Asked("Fine.")
    crew = crew_with(model)
    first = crew.run({"topic": "rivers", "field": "water"}).start()
    second = crew.run({"topic": "stars", "field": "light"}).start()
    assert (await first).is_completed
    assert (await second).is_completed
    told = {tuple(message.text for message in request.messages) for request in model.requests}
    assert told == {
        (
            "You are water expert.\n\nReads water only.\n\nYour goal: Know rivers",
            "Explain rivers.\n\nExpected of your answer: One line on rivers",
        ),
        (
            "You are light expert.\n\nReads light only.\n\nYour goal: Know stars",
            "Explain stars.\n\nExpected of your answer: One line on stars",
        ),
    }


def test_a_name_that_is_missing_fails_before_any_request() -> None:
    model = Asked("Fine.")
    with pytest.raises(ConfigurationError, match=r"the inputs lack field; the crew takes \{field\}, \{topic\}"):
        crew_with(model).run({"topic": "rivers"})
    with pytest.raises(ConfigurationError, match="the inputs lack field, topic"):
        crew_with(model).run()
    assert model.requests == []


def test_a_name_that_no_text_has_is_an_error_too() -> None:
    with pytest.raises(ConfigurationError, match="no text of the crew has audience in braces"):
        crew_with(Asked("Fine.")).run({"topic": "rivers", "field": "water", "audience": "all"})


@pytest.mark.parametrize("wrong", ["rivers", 7, ["rivers"]], ids=str)
def test_what_is_no_mapping_is_an_error_where_there_are_several_names(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="inputs are a mapping"):
        crew_with(Asked("Fine.")).run(wrong)


def test_a_value_without_a_form_in_json_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="object"):
        crew_with(Asked("Fine.")).run({"topic": object(), "field": "water"})


@pytest.mark.virtual_time
async def test_a_text_fills_the_one_name_that_there_is() -> None:
    model = Asked("Fine.")
    crew = Crew([Task(description="Explain {topic}.", agent=member("ann", model))])
    assert (await crew.run("rivers")).is_completed
    assert model.prompts == ["Explain rivers."]


@pytest.mark.virtual_time
async def test_inputs_are_read_when_the_run_is_made() -> None:
    """Changing the mapping afterwards changes nothing."""
    model, inputs = Asked("Fine."), {"topic": "rivers"}
    run = Crew([Task(description="Explain {topic}.", agent=member("ann", model))]).run(inputs)
    inputs["topic"] = "stars"
    await run
    assert model.prompts == ["Explain rivers."]


@pytest.mark.virtual_time
async def test_the_instructions_of_a_plain_agent_are_not_filled() -> None:
    """They are used elsewhere too, where braces mean nothing."""
    model = Asked("Fine.")
    agent = Agent(model, instructions='Answer {"as": {this}}.')
    assert (await Crew([Task(description="Go.", agent=agent)]).run()).is_completed
    assert model.requests[0].messages[0].text == 'Answer {"as": {this}}.'


@pytest.mark.virtual_time
async def test_a_member_alone_is_an_agent_whose_braces_stay() -> None:
    model = Asked("Fine.")
    alone = Member(model, role="{field} expert", goal="Know it")
    assert (await alone.run("Hello")).text == "Fine."
    assert alone.name == "field expert"
    assert model.requests[0].messages[0].text == "You are {field} expert.\n\nYour goal: Know it"


@pytest.mark.virtual_time
@pytest.mark.parametrize("how", ["tools", "handoffs"])
async def test_a_member_whom_another_asks_or_hands_over_to_is_filled_too(how: str) -> None:
    """And is as it was outside of the crew."""
    model = Asked("It is old.")
    expert = member("expert", model, role="expert on {topic}")
    call = calls("expert", input="How old?") if how == "tools" else calls("transfer_to_expert")
    boss = member("boss", call, "Old.", **{how: [expert]})
    crew = Crew([Task(description="How old is it?", agent=boss)])
    assert crew.inputs == {"topic"}
    with pytest.raises(ConfigurationError, match="lack topic"):
        crew.run()
    await crew.run({"topic": "the Nile"})
    await boss.run("How old is it?")
    told = [request.messages[0].text.partition("\n")[0] for request in model.requests]
    assert told == ["You are expert on the Nile.", "You are expert on {topic}."]
