"""The steps of a flow, and what follows what; checked as a whole. Pure.

1. What is refused can never be right: a name that there is not, a step that can never run, a circle without a way out.
2. Nothing that could be right is refused: a router that may run twice may choose otherwise the second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TypeAlias

from halter.errors import ConfigurationError
from halter.flows.conditions import All, Condition, Either, sources_of
from halter.flows.steps import Step

# The choices of routers that lead somewhere: each router's name with its label.
Way: TypeAlias = frozenset[tuple[str, str]]
ANY_WAY: frozenset[Way] = frozenset((frozenset(),))
MOST_WAYS = 64  # that are told apart; beyond, anything is taken to be possible


class Graph:
    """The steps by name, and the listeners of each source. Immutable. Raises `ConfigurationError`.

    `flow`: how errors call it.
    """

    def __init__(self, flow: str, steps: Iterable[Step]) -> None:
        self._flow = flow
        self.steps: Mapping[str, Step] = {step.name: step for step in steps}
        self.routers: dict[str, tuple[Step, ...]] = {}
        for step in self.steps.values():
            for label in step.labels or ():
                self.routers[label] = (*self.routers.get(label, ()), step)
        self._check_names()
        self.listeners: dict[str, tuple[Step, ...]] = {
            source: tuple(step for step in self.steps.values() if source in _heard(step))
            for source in (*self.steps, *self.routers)
        }
        self._run_once = self._found_to_run_once()
        self._check_reach()
        self._check_ends()

    @property
    def starts(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps.values() if step.is_start)

    # --- what is refused ------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        if not self.starts:
            raise ConfigurationError(f"{self._flow} has no step to begin with: one has to be @start()")
        if both := sorted(self.steps.keys() & self.routers.keys()):
            raise ConfigurationError(f"in {self._flow}, {both[0]!r} is both a step and a label: rename one")
        for step in self.steps.values():
            for source in _heard(step):
                if source not in self.steps and source not in self.routers:
                    labels = f", and the labels {', '.join(sorted(self.routers))}" if self.routers else ""
                    raise ConfigurationError(
                        f"{self._flow}.{step.name} listens to {source!r}, which is neither a step nor a label; "
                        f"there are the steps {', '.join(self.steps)}{labels}"
                    )

    def _check_reach(self) -> None:
        ways = self._ways()
        for step in self.steps.values():
            if not ways[step.name]:
                raise ConfigurationError(
                    f"{self._flow}.{step.name} can never run: no way through the flow brings all that it waits for"
                )

    def _check_ends(self) -> None:
        ending: set[str] = set()
        while more := {name for name, step in self.steps.items() if name not in ending and self._ends(step, ending)}:
            ending |= more
        if endless := [name for name in self.steps if name not in ending]:
            raise ConfigurationError(
                f"{self._flow} can never end: after {', '.join(endless)} another step always follows; "
                f"a router must have a label that leads out"
            )

    def _ends(self, step: Step, ending: set[str]) -> bool:
        if not self._all_end(step.name, ending):
            return False
        return step.labels is None or any(self._all_end(label, ending) for label in step.labels)

    def _all_end(self, source: str, ending: set[str]) -> bool:
        """A listener that runs but once is no part of an endless circle."""
        return all(each.name in ending or each.name in self._run_once for each in self.listeners[source])

    # --- what may happen ------------------------------------------------------------------------------------

    def _found_to_run_once(self) -> frozenset[str]:
        """The steps that run at most once, whatever is chosen."""
        once: set[str] = set()
        while more := {
            name
            for name, step in self.steps.items()
            if name not in once and (step.condition is None or self._comes_once(step.condition, once))
        }:
            once |= more
        return frozenset(once)

    def _comes_once(self, condition: Condition, once: set[str]) -> bool:
        match condition:
            case str():
                routers = self.routers.get(condition)
                return condition in once if routers is None else len(routers) == 1 and routers[0].name in once
            case All(parts):
                return any(self._comes_once(part, once) for part in parts)
            case Either():
                return False

    def _ways(self) -> dict[str, frozenset[Way]]:
        """For each source, the choices that bring it; none: it never comes."""
        ways: dict[str, frozenset[Way]] = dict.fromkeys((*self.steps, *self.routers), frozenset())
        while True:
            before = dict(ways)
            for name, step in self.steps.items():
                ways[name] = ANY_WAY if step.condition is None else _shortest(_ways_to(step.condition, ways))
            for label, routers in self.routers.items():
                ways[label] = _shortest({self._chosen(way, step, label) for step in routers for way in ways[step.name]})
            if ways == before:
                return ways

    def _chosen(self, way: Way, step: Step, label: str) -> Way:
        """A router that may run again may choose otherwise: that it has chosen this rules nothing out."""
        return way | {(step.name, label)} if step.name in self._run_once else way


def _heard(step: Step) -> set[str]:
    return set() if step.condition is None else set(sources_of(step.condition))


def _ways_to(condition: Condition, ways: Mapping[str, frozenset[Way]]) -> Iterable[Way]:
    match condition:
        case str():
            return ways[condition]
        case Either(parts):
            return {way for part in parts for way in _ways_to(part, ways)}
        case All(parts):
            each = (_shortest(_ways_to(part, ways)) for part in parts)
            together = (frozenset[tuple[str, str]]().union(*combined) for combined in product(*each))
            return {way for way in together if len(dict(way)) == len(way)}  # else a router would choose twice


def _shortest(ways: Iterable[Way]) -> frozenset[Way]:
    """Those that say something new: a way that asks for more than another one adds nothing."""
    distinct = set(ways)
    found = frozenset(way for way in distinct if not any(other < way for other in distinct))
    return found if len(found) <= MOST_WAYS else ANY_WAY
