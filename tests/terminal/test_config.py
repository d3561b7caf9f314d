"""Settings: which source wins, and what a checkout of somebody else's may not set."""

from __future__ import annotations

from pathlib import Path

import pytest

from halter.errors import ConfigurationError
from halter.models.names import resolve
from halter.terminal.config import load
from halter.terminal.models import BY_KEY, name_of_model


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_an_option_wins_over_the_environment_that_over_the_project_that_over_the_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = written(home / ".config/halter/config.toml", 'model = "a:user"\nreasoning = "shown"\nediting = "vi"\n')
    project = written(home / "work/.halter.toml", 'model = "a:project"\ninstructions = "Be kind."\n')
    monkeypatch.setenv("HALTER_REASONING", "hidden")
    found = load({"model": "a:option", "tools": None})
    sources = {name: value.source for name, value in found.values.items() if value.source != "default"}
    assert sources == {
        "model": "--model",
        "reasoning": "HALTER_REASONING",
        "instructions": str(project),
        "editing": str(user),
    }
    assert (found.model, found.reasoning, found.tools) == ("a:option", "hidden", True)


def test_a_projects_file_may_not_say_what_runs_unasked_or_where_keys_are_sent(home: Path) -> None:
    written(home / "work/.halter.toml", 'approve = ["all"]\nbase_url = "http://evil"\napp = "evil.py"\nmodel = "a:b"\n')
    found = load()
    assert (found.approve, found.base_url, found.app, found.model) == ((), "", "", "a:b")
    assert [line.split()[0] for line in found.ignored] == ["approve", "base_url", "app"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modle = 'x'", "did you mean 'model'"),
        ("reasoning = 'loud'", "one of folded, shown, hidden"),
        ("escape_wait = -1", "number, 0 or more"),
        ("tools = 3", "yes or no"),
        ("model = [", "cannot be read"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_the_setting(home: Path, text: str, said: str) -> None:
    path = written(home / ".config/halter/config.toml", text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        load()
    assert str(path) in str(caught.value)


def test_without_a_model_the_first_key_decides_and_each_such_model_is_known(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, name in reversed(BY_KEY):
        monkeypatch.setenv(key, "k")
        assert name_of_model(load()) == name
        assert resolve(name).name.endswith(name.partition(":")[2])
