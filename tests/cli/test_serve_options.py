"""Every option of `halter serve` can be given in the environment, as its help says."""

from __future__ import annotations

import argparse

import pytest

from halter.cli import serve
from halter.errors import ConfigurationError


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_serve(parser)
    found = parser.parse_args(["app.py", *arguments])
    serve._complete(found)
    return found


def test_every_option_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    serve.add_serve(parser)
    named = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    assert len(named) == 20
    for each in named:
        monkeypatch.setenv(f"HALTER_{each.dest.upper()}", "1")
    found = options()
    for each in named:
        expected = ["1"] if each.dest == "allow_host" else True if each.nargs == 0 else "1"
        assert getattr(found, each.dest) == expected, each.dest


@pytest.mark.parametrize("name", ["no_keys", "otel", "otel_content", "reload"])
@pytest.mark.parametrize("value", ["0", "false", "No", "off", ""])
def test_a_switch_that_is_off_in_the_environment_is_off(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """`HALTER_NO_KEYS=false` must not open the server to everybody."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    monkeypatch.setenv(f"HALTER_{name.upper()}", value)
    assert getattr(options(), name) is False


def test_a_switch_with_another_value_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALTER_NO_KEYS", "maybe")
    with pytest.raises(ConfigurationError, match="HALTER_NO_KEYS must be 1 or 0, not 'maybe'"):
        options()


def test_several_hosts_have_commas_in_between_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALTER_ALLOW_HOST", "a.example, b.example,")
    monkeypatch.setenv("HALTER_PORT", "9000")
    assert (options().allow_host, options().port) == (["a.example", "b.example"], "9000")
    found = options("--allow-host", "c.example", "--port", "1")
    assert (found.allow_host, found.port) == (["c.example"], "1")
