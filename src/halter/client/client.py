"""`Client`: a Halter server, as its users hold it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from halter.client.run import RemoteRun
from halter.client.transport import Pending, Transport
from halter.core.ids import new_id
from halter.core.settings import seconds
from halter.errors import ConfigurationError, ServerRefused
from halter.outcome import CancelMode, CancelReason

DEFAULT_URL = "http://127.0.0.1:8000"


class Client:
    """A server that `halter serve` or `create_app` runs.

    Args:
        url: its address; by default `HALTER_URL`, else `http://127.0.0.1:8000`.
        key: an API key; by default `HALTER_KEY`.
        linger: seconds that the server waits for this client to come back before it stops a run.
        patience: seconds for which a lost connection is resumed before a reader is told.

    Raises:
        ConfigurationError: if the address is no `http://` or `https://` URL.

    It works from any task, thread and event loop. Methods that ask the server return a `Pending`: `await` it, or call
    its `result()` in blocking code.
    """

    def __init__(
        self, url: str | None = None, *, key: str | None = None, linger: float = 30.0, patience: float = 60.0
    ) -> None:
        url = url or os.environ.get("HALTER_URL") or DEFAULT_URL
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"the server's address must begin with http:// or https://, not {url!r}")
        self._transport = Transport(url, key if key is not None else os.environ.get("HALTER_KEY"))
        self._linger = seconds("linger", linger)
        self._patience = seconds("patience", patience) or 0.0

    @property
    def url(self) -> str:
        """The server's address."""
        return self._transport.url

    def request(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> Pending[Any]:
        """Any request of the server's API, as in `request("GET", "/v1/sessions")`; its JSON.

        Raises `ServerRefused` for a problem, `ConnectionFailed` without an answer.
        """
        return Pending(self._transport.request(method, path, body=body, query=query))

    # --- runs -----------------------------------------------------------------------------------------------

    def run(
        self,
        agent: str,
        input: Any = None,
        *,
        id: str | None = None,
        session: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
        budget: Mapping[str, float] | None = None,
        tags: Iterable[str] = (),
        keep: Literal["partial", "rollback"] = "partial",
        on_busy: Literal["reject", "enqueue", "interrupt", "steer"] = "reject",
        on_disconnect: Literal["cancel", "detach"] = "cancel",
    ) -> RemoteRun[Any]:
        """A handle on a new run, at once; it starts with its first use.

        Args:
            agent: the name of what is to run, as `agents()` lists it.
            input: what it takes.
            id: your own id; the same one with the same arguments never starts a second run.
            session: the conversation that it continues.
            user: whom it talks with.
            timeout: seconds from the start.
            budget: `tokens`, `cost_usd`, `model_calls`, `tool_calls`.
            tags: words to find it by.
            keep: what the session keeps of a stopped turn.
            on_busy: what happens when another run has the session's turn.
            on_disconnect: `cancel` stops the run when this client is gone for longer than `linger`.
        """
        body: dict[str, Any] = {
            "agent": agent,
            "input": input,
            "id": id or new_id(),
            "session": session,
            "user": user,
            "timeout": timeout,
            "budget": dict(budget) if budget else None,
            "tags": list(tags),
            "keep": keep,
            "on_busy": on_busy,
            "on_disconnect": on_disconnect,
            "linger": self._linger,
            "stream": True,
        }
        start = {name: value for name, value in body.items() if value is not None}
        return RemoteRun(self._transport, start["id"], start, patience=self._patience)

    def find(self, id: str) -> RemoteRun[Any]:
        """A handle on a run that was started before. Dropping it stops nothing."""
        return RemoteRun(self._transport, id, None, patience=self._patience)

    def get(self, id: str) -> Pending[dict[str, Any]]:
        """The run's record, as `GET /v1/runs/{id}` gives it. Raises `ServerRefused` with status 404."""
        return Pending(self._transport.request("GET", f"/v1/runs/{id}"))

    def runs(
        self,
        *,
        session: str | None = None,
        status: str | None = None,
        tag: str | None = None,
        agent: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Pending[dict[str, Any]]:
        """The records of runs, the newest first: `{"runs": […], "next": …}`."""
        query = {
            "session": session, "status": status, "tag": tag, "agent": agent, "before": before, "limit": limit,
        }  # fmt: skip
        return Pending(self._transport.request("GET", "/v1/runs", query=query))

    def cancel(
        self,
        id: str,
        message: str | None = None,
        *,
        reason: CancelReason = CancelReason.USER_STOP,
        mode: CancelMode = CancelMode.IMMEDIATE,
        wait: float = 5.0,
    ) -> Pending[dict[str, Any]]:
        """Stops a run by its id; the record, after `wait` seconds at most. Raises `ServerRefused` with status 404."""
        body = {"message": message, "reason": reason, "mode": mode}
        return Pending(self._transport.request("POST", f"/v1/runs/{id}/cancel", body=body, query={"wait": wait}))

    def cancel_all(
        self,
        message: str | None = None,
        *,
        session: str | None = None,
        tag: str | None = None,
        agent: str | None = None,
        everything: bool = False,
        mode: CancelMode = CancelMode.IMMEDIATE,
        wait: float = 5.0,
    ) -> Pending[dict[str, Any]]:
        """Stops all live runs that fit: `{"runs": […]}`. `everything`: without a filter, all of them."""
        given = {"session": session, "tag": tag, "agent": agent, "message": message}
        body = {**{name: value for name, value in given.items() if value is not None}, "mode": mode}
        body |= {"all": True} if everything else {}
        return Pending(self._transport.request("POST", "/v1/cancel", body=body, query={"wait": wait}))

    def agents(self) -> Pending[dict[str, Any]]:
        """What can be started: `{"agents": […]}`."""
        return Pending(self._transport.request("GET", "/v1/agents"))

    def approvals(
        self, *, remembered: bool = False, before: str | None = None, limit: int = 50
    ) -> Pending[dict[str, Any]]:
        """Approvals and their answers, the newest first: `{"approvals": […], "next": …}`.

        `remembered`: only those that hold now.
        """
        query = {"remembered": "true" if remembered else None, "before": before, "limit": limit}
        return Pending(self._transport.request("GET", "/v1/approvals", query=query))

    def forget_approval(self, id: str) -> Pending[bool]:
        """Takes back a remembered approval; False if none of this id is remembered."""
        return Pending(self._forget(id))

    async def _forget(self, id: str) -> bool:
        try:
            await self._transport.request("DELETE", f"/v1/approvals/{quote(id, safe='')}")
        except ServerRefused as error:
            if error.status == 404:
                return False
            raise
        return True

    # --- its own end ----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Closes its connections. Runs that it has started are stopped by the server after `linger`."""
        await Pending(self._transport.aclose())

    def close(self) -> None:
        """The blocking form of `aclose`."""
        Pending(self._transport.aclose()).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._transport.url}>"
