"""Learning: a run of its own, in the background, that takes facts from what was said.

1. What a conversation changes is one transaction: the facts, and how far it has been learned from. Ended in the middle,
nothing has happened, and the next one takes up what was left. 2. It learns only from turns that are over, and begins
when the run that has started it has completed; stops and failures teach nothing. 3. One at a time for each scope on an
event loop; another process that was faster is noticed by how far was learned, and then nothing is changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from weakref import WeakValueDictionary

import msgspec

from halter.codec import Unfit
from halter.core.context import RunContext
from halter.core.home import home_here
from halter.core.ports import Model
from halter.core.runnable import Runnable
from halter.facts import asking
from halter.facts.changes import Changes, Held, beyond, held, untouched
from halter.facts.facts import Facts
from halter.facts.nearness import units
from halter.facts.talk import Stretch, next_stretch
from halter.facts.whose import Whose
from halter.features import Features
from halter.messages import Message, checked_message
from halter.request import ModelRequest
from halter.sessions.records import Fact

MOST_STRETCHES = 4  # at once; what is further behind is caught up by the next ones
MOST_TOLD = 60  # known facts that the model gets to see, with their numbers
MOST_EMBEDDED = 200  # facts that lack an embedding and get one besides
EMBEDDING = 30.0  # seconds: whoever learns of the same person waits
_LOCKS = object()
_logger = logging.getLogger("halter")


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of learning has come to. `messages`: how many it has looked at. `put`: facts added or changed."""

    messages: int = 0
    put: int = 0
    forgotten: int = 0

    def __add__(self, other: Learned) -> Learned:
        return Learned(
            messages=self.messages + other.messages,
            put=self.put + other.put,
            forgotten=self.forgotten + other.forgotten,
        )


class Learning(Runnable[Learned]):
    """Brings the facts of one place up to date once its turn has completed. `recalled`: the ids of facts it was told.

    Cancellation-safe at every point. It fails with what the model or the store raises; then what it has not learned is
    left to the next one.
    """

    kind = "memory"
    _name = "memory"

    def __init__(self, facts: Facts, model: Model, whose: Whose, recalled: Collection[str]) -> None:
        self._facts = facts
        self._model = model
        self._whose = whose
        self._recalled = recalled

    @property
    def model_name(self) -> str | None:
        return self._model.name

    async def execute(self, ctx: RunContext) -> Learned:
        if not (await self._whose.turn.finished()).is_completed:
            return Learned()
        try:
            async with _lock(self._whose):
                if self._recalled:
                    await self._whose.store.recalled(self._recalled, time.time())
                return await self._learn(ctx)
        except Exception as error:
            _logger.warning("nothing was learned from session %s this time: %s", self._whose.session_id, error)
            raise

    async def _learn(self, ctx: RunContext) -> Learned:
        learned = Learned()
        for _ in range(MOST_STRETCHES):
            begun, messages = await self._new()
            if not messages:
                break
            stretch = next_stretch(messages, begun)
            done = await self._learn_from(stretch, begun, messages[: stretch.upto - begun], ctx)
            if done is None:  # somebody else has, or it is not what was said any more
                break
            learned += done
        return learned

    # --- what there is to learn from ------------------------------------------------------------------------

    async def _new(self) -> tuple[int, Sequence[Message]]:
        """How far it was learned from for this scope, and what was said since, in turns that are over."""
        store, id = self._whose.store, self._whose.session_id
        begun = (await store.known(id)).get(self._whose.scope, 0)
        conversation = await store.load(id)
        if conversation is None:
            return begun, ()
        first = conversation.checkpoint.upto if conversation.checkpoint is not None else 0
        if begun < first:
            conversation, first = await store.load(id, full=True) or conversation, 0
        session = conversation.session
        over = session.messages if session.holder is None else await self._before(session.holder)
        return begun, conversation.messages[begun - first : max(0, over - first)]

    async def _before(self, holder: str) -> int:
        """Messages before the turn that another run has by now: that one may yet be stopped, or taken back."""
        record = await self._whose.store.run(holder)
        return 0 if record is None else record.base

    async def _is_still_said(self, begun: int, messages: Sequence[Message]) -> bool:
        """Whether these stand where they stood: while a model thinks, a session may be rewound, or deleted and begun
        anew under its old name."""
        now, found = await self._new()
        return now == begun and tuple(found[: len(messages)]) == tuple(messages)

    # --- learning -------------------------------------------------------------------------------------------

    async def _learn_from(
        self, stretch: Stretch, begun: int, messages: Sequence[Message], ctx: RunContext
    ) -> Learned | None:
        known = await self._whose.store.facts(self._whose.scope)
        changes, told = Changes(), ()
        if stretch.said:
            told = await self._related(known, stretch)
            changes = await self._asked(told, stretch, ctx)
            known = await self._whose.store.facts(self._whose.scope)  # somebody may have edited them meanwhile
        scope, session_id = self._whose.scope, self._whose.session_id
        holding = held(changes, told, known, scope=scope, session_id=session_id, now=time.time())
        holding = beyond(known, holding, self._facts.most)
        holding = untouched(await self._embedded(holding, known), known, await self._whose.store.facts(scope))
        if not await self._is_still_said(begun, messages) or not await self._apply(holding, begun, stretch.upto):
            return None
        return Learned(messages=stretch.upto - begun, put=len(holding.put), forgotten=len(holding.forget))

    async def _related(self, known: Sequence[Fact], stretch: Stretch) -> Sequence[Fact]:
        """The facts that what was said may change: all, or those that share words with it, and the newest."""
        if len(known) <= MOST_TOLD:
            return known
        found = await self._whose.store.find_facts(self._whose.scope, stretch.text, limit=MOST_TOLD)
        ids = {fact.id for fact in found}
        return (*found, *(fact for fact in known if fact.id not in ids))[:MOST_TOLD]

    async def _asked(self, told: Sequence[Fact], stretch: Stretch, ctx: RunContext) -> Changes:
        """What the model answers; one that does not fit is told so, once."""
        features = getattr(self._model, "features", None)
        is_held = not isinstance(features, Features) or features.output
        request = ModelRequest(
            messages=asking.question(self._facts.template, told, stretch),
            output=asking.ANSWER.schema if is_held else None,
        )
        answer = checked_message(await self._model.respond(request, ctx))
        try:
            return asking.ANSWER.read(answer)
        except Unfit as unfit:
            again = (*request.messages, answer, asking.ANSWER.repair(unfit))
        answer = checked_message(await self._model.respond(msgspec.structs.replace(request, messages=again), ctx))
        try:
            return asking.ANSWER.read(answer)
        except Unfit as unfit:
            raise asking.ANSWER.error(answer, unfit) from unfit

    async def _apply(self, holding: Held, begun: int, upto: int) -> bool:
        return await self._whose.store.change_facts(
            self._whose.scope,
            put=holding.put,
            forget=holding.forget,
            session_id=self._whose.session_id,
            known_from=begun,
            known_upto=upto,
        )

    async def _embedded(self, holding: Held, known: Sequence[Fact]) -> Held:
        """With embeddings for what is new, and for what has none, or one of another model: added or edited by hand, or
        before.

        Without them, if that fails: such facts are found by their words, and get one with the next learning.
        """
        if self._facts.embed is None:
            return holding
        touched = {*holding.forget, *(fact.id for fact in holding.put)}
        rest = [fact for fact in known if fact.id not in touched]
        bare = [fact for fact in rest if fact.embedding is None]
        try:
            put = await self._with_vectors([*holding.put, *bare[:MOST_EMBEDDED]])
            lengths = {len(fact.embedding or ()) for fact in put}
            others = [fact for fact in rest if fact.embedding is not None and {len(fact.embedding)} != lengths]
            put += await self._with_vectors(others[:MOST_EMBEDDED] if lengths else ())  # by another model than now
        except Exception as error:
            _logger.warning(
                "facts of %s got no embeddings: %s", self._whose.scope.name, str(error) or type(error).__name__
            )
            return holding
        return msgspec.structs.replace(holding, put=tuple(put))

    async def _with_vectors(self, facts: Sequence[Fact]) -> list[Fact]:
        embed = self._facts.embed
        if embed is None or not facts:
            return list(facts)
        async with asyncio.timeout(EMBEDDING):
            vectors = units(await embed([fact.text for fact in facts]), len(facts))
        return [msgspec.structs.replace(fact, embedding=vector) for fact, vector in zip(facts, vectors, strict=True)]


def _lock(whose: Whose) -> asyncio.Lock:
    """One for each scope, for as long as somebody has it."""
    locks: WeakValueDictionary[object, asyncio.Lock] = home_here().kept.setdefault(_LOCKS, WeakValueDictionary())
    return locks.setdefault((id(whose.store), whose.scope), asyncio.Lock())
