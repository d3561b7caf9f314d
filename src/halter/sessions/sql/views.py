"""The views through which people look at their database with SQL: documented names and columns, plain values.

1. They are made anew with each migration, from the tables as they are then: no step has to mind them. Who changes one
adds a step. 2. Nothing in Halter reads them. 3. A row that is not as Halter writes it has empty columns there.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

NAMES = ("halter_sessions_view", "halter_messages_view", "halter_runs_view", "halter_facts_view")

# `{json}` makes JSON of stored bytes, `{at}` a time of seconds.
_VIEWS = """
CREATE VIEW halter_sessions_view AS SELECT
    id, user_id, title, {text_of_metadata} AS metadata, messages, holder,
    {created_at} AS created_at, {updated_at} AS updated_at
FROM halter_sessions;

CREATE VIEW halter_messages_view AS SELECT
    s.id AS session_id, s.user_id, m.position, {role} AS role, {said} AS text, {as_text} AS data
FROM (SELECT key >> 32 AS session_key, key & 4294967295 AS position, {json_of_data} AS data FROM halter_messages) AS m
JOIN halter_sessions AS s ON s.key = m.session_key;

CREATE VIEW halter_runs_view AS SELECT
    run_id, session_id, user_id, {name} AS name, {kind} AS kind, {model} AS model, status,
    {input_tokens} AS input_tokens, {output_tokens} AS output_tokens, {cost} AS cost,
    {started_at} AS started_at, {ended_at} AS ended_at, {as_text} AS data
FROM (
    SELECT run_id, session_id, user_id, status, started_at, ended_at, {json_of_data} AS data FROM halter_runs
) AS r;

CREATE VIEW halter_facts_view AS SELECT
    kind, scope AS name, CASE WHEN kind = 'user' THEN scope END AS user_id, id, session_id, {fact} AS text,
    {updated_at} AS updated_at
FROM (SELECT kind, scope, id, session_id, updated_at, {json_of_data} AS data FROM halter_facts) AS f
"""

_FIELDS = {"role": "role", "name": "name", "kind": "kind", "model": "model", "fact": "text"}
_NUMBERS = {"input_tokens": ("usage", "input"), "output_tokens": ("usage", "output"), "cost": ("cost",)}
_TIMES = ("created_at", "updated_at", "started_at", "ended_at")

# JSON has signs that PostgreSQL's text has not, and a row may be damaged: neither must spoil a whole query.
_FUNCTION = r"""
CREATE FUNCTION halter_json(stored bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $halter$
BEGIN
    RETURN regexp_replace(
        convert_from(stored, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1\\ufffd', 'g'
    )::json;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $halter$
"""


def _sqlite() -> list[str]:
    def json_of(column: str) -> str:
        text = f"CAST({column} AS TEXT)"
        return f"CASE WHEN json_valid({text}) THEN {text} END"

    texts = "json_each(m.data, '$.parts') WHERE json_extract(value, '$.type') = 'text'"
    said = f"(SELECT group_concat(json_extract(value, '$.text'), '') FROM {texts})"
    return _filled(
        json_of_data=json_of("data"),
        text_of_metadata=json_of("metadata"),
        as_text="data",
        said=said,
        **{column: f"json_extract(data, '$.{field}')" for column, field in _FIELDS.items()},
        **{column: f"json_extract(data, '$.{'.'.join(path)}')" for column, path in _NUMBERS.items()},
        **{column: f"strftime('%Y-%m-%dT%H:%M:%fZ', {column}, 'unixepoch')" for column in _TIMES},
    )


def _postgresql() -> list[str]:
    def number(path: Sequence[str]) -> str:
        value = f"data #> '{{{','.join(path)}}}'"
        return f"CASE json_typeof({value}) WHEN 'number' THEN ({value})::text::double precision END"

    parts = "CASE json_typeof(m.data -> 'parts') WHEN 'array' THEN m.data -> 'parts' END"
    each = f"json_array_elements({parts}) WITH ORDINALITY AS each (part, number)"
    said = f"(SELECT string_agg(part ->> 'text', '' ORDER BY number) FROM {each} WHERE part ->> 'type' = 'text')"
    views = _filled(
        json_of_data="halter_json(data)",
        text_of_metadata="halter_json(metadata)",
        as_text="data",
        said=said,
        **{column: f"data ->> '{field}'" for column, field in _FIELDS.items()},
        **{column: number(path) for column, path in _NUMBERS.items()},
        **{column: f"to_timestamp({column})" for column in _TIMES},
    )
    return [_FUNCTION, *views]


def _filled(**values: str) -> list[str]:
    return _VIEWS.format(**values).split(";")


def drop_views(connection: sa.Connection) -> None:
    for name in NAMES:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION IF EXISTS halter_json(bytea)")


def create_views(connection: sa.Connection) -> None:
    for statement in _postgresql() if connection.dialect.name == "postgresql" else _sqlite():
        connection.exec_driver_sql(statement)
