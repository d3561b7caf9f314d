"""The OpenAPI document says of each route what it takes, what it answers, and shows an example of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi import FastAPI

from halter import Agent
from halter.server import create_app, mount

DOCUMENT: dict[str, Any] = create_app(Agent("scripted:Hi", name="poet")).openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    f"{method} {path}": operation for path, found in DOCUMENT["paths"].items() for method, operation in found.items()
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def with_nulls_left_out(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, where a field may be left out that may be `null`: FastAPI drops those from examples."""
    fields = schema.get("properties", {})

    def is_never_null(field: dict[str, Any]) -> bool:
        return "type" in field or "$ref" in field or ("anyOf" in field and {"type": "null"} not in field["anyOf"])

    must = [name for name in schema.get("required", ()) if is_never_null(fields[name])]
    return {**schema, "required": must}


def examples_of(content: dict[str, Any]) -> Iterator[Any]:
    """Those of a media type, or of the models that its schema names."""
    if "example" in content:
        yield content["example"]
    schema = content.get("schema", {})
    for one in (schema, *schema.get("anyOf", ())):
        if "$ref" in one:
            yield from SCHEMAS[one["$ref"].rpartition("/")[2]].get("examples", ())


def contents_of(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The media types of the request's body and of the answers."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"body as {kind}", content
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            yield f"{status} as {kind}", content


LENIENT = {name: with_nulls_left_out(schema) for name, schema in SCHEMAS.items()}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_route_parameter_and_answer_is_described(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["description"]
    assert all(answer["description"] for answer in operation["responses"].values())
    assert [each["name"] for each in operation.get("parameters", ()) if not each.get("description")] == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_body_and_answer_has_an_example_that_fits_its_schema(name: str) -> None:
    for what, content in contents_of(OPERATIONS[name]):
        examples = list(examples_of(content))
        assert examples, f"{what} has no example"
        schema = {"$schema": DIALECT, **content.get("schema", {}), "components": {"schemas": LENIENT}}
        for example in examples:
            if not isinstance(example, str):
                jsonschema.validate(example, schema)


def test_routes_that_need_a_key_say_so_and_the_others_need_none() -> None:
    open_to_all = {name for name, operation in OPERATIONS.items() if "security" not in operation}
    assert open_to_all == {"get /healthz", "get /readyz", "get /metrics"}


def test_operations_have_ids_of_their_own_also_in_an_app_that_mounts_two_servers() -> None:
    app = FastAPI()
    for prefix in ("/one", "/two"):
        mount(app, Agent("scripted:Hi", name="poet"), prefix=prefix)
    paths = app.openapi()["paths"]
    ids = [operation["operationId"] for found in paths.values() for operation in found.values()]
    assert len(set(ids)) == len(ids) == 2 * len(OPERATIONS)
