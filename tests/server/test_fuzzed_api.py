"""Schemathesis over the OpenAPI document: no 5xx, and no answer that the document does not describe."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.requests import HTTPConnection

from halter import Agent
from halter.models.scripted import Scripted
from halter.server import Principal, create_app

from .conftest import Serve, Served

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TIMEOUT = 20.0  # seconds for one answer


def agent() -> Agent:
    return Agent(Scripted("Hi."), name="agent")


def document(served: Served) -> Any:
    """The document, as its readers get it."""
    schema = schemathesis.openapi.from_dict(served.client.get("/openapi.json").json())
    schema.config.update(base_url=served.url)
    return schema


ENDLESS = ("/v1/live",)  # a stream that ends with its client
OPERATIONS = [
    (method.upper(), path)
    for path, item in create_app(agent()).openapi()["paths"].items()
    for method in item
    if method in ("get", "post", "put", "patch", "delete") and path not in ENDLESS
]


def some(count: int, *, derandomize: bool) -> settings:
    return settings(
        max_examples=count,
        derandomize=derandomize,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def check_operations(served: Served, count: int, *, derandomize: bool) -> None:
    """Sends `count` requests to each operation, with ids of things that are there among them."""
    schema = document(served)
    for method, path in OPERATIONS:

        @some(count, derandomize=derandomize)
        @given(case=schema[path][method].as_strategy())
        def check(case: Any) -> None:
            if "id" in case.path_parameters and len(case.path_parameters["id"]) % 2:
                case.path_parameters["id"] = "there"
            case.call_and_validate(checks=CHECKS, timeout=TIMEOUT)

        check()
        assert served.client.post("/v1/sessions", json={"id": "there"}).status_code in (201, 409)


@pytest.mark.scenario("G73")
def test_no_request_that_the_document_allows_gets_an_answer_that_it_does_not(serve: Serve) -> None:
    served = serve(agent())
    served.start(id="there", session="there")
    check_operations(served, 6, derandomize=True)
    assert served.client.get("/readyz").status_code == 200


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_nor_do_thousands_of_them(serve: Serve) -> None:
    served = serve(agent())
    served.start(id="there", session="there")
    check_operations(served, 300, derandomize=False)
    assert served.client.get("/readyz").status_code == 200


async def tenant_of_header(request: HTTPConnection) -> Principal:
    return Principal(tenant=request.headers.get("tenant", "nobody"))


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_nor_do_sequences_of_requests_that_use_what_earlier_ones_have_made(serve: Serve) -> None:
    served = serve(agent(), auth=tenant_of_header)
    machine = document(served).as_state_machine()
    tenants = itertools.count()

    class Sequences(machine):  # type: ignore[misc, valid-type]
        def setup(self) -> None:
            self.tenant = f"t{next(tenants)}"  # nothing is there yet: what a sequence does depends on it alone

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"timeout": TIMEOUT, "headers": {"tenant": self.tenant}}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    Sequences.run(
        settings=settings(
            max_examples=200,
            stateful_step_count=10,
            deadline=None,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
    )
    assert served.client.get("/readyz").status_code == 200
