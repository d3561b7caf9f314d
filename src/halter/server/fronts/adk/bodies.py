"""What ADK's clients send. Fields are read in camelCase and in snake_case; fields that are not listed are ignored."""

from __future__ import annotations

from typing import Any

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class AdkBody(BaseModel):
    """What all of them have in common."""

    model_config = ConfigDict(
        extra="ignore", alias_generator=AliasGenerator(validation_alias=to_camel), populate_by_name=True
    )


class BlobBody(AdkBody):
    """Bytes of a part, in base64."""

    data: str
    mime_type: str = "application/octet-stream"
    display_name: str | None = None


class FileBody(AdkBody):
    """A file that the provider fetches."""

    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class CallBody(AdkBody):
    """A function call."""

    id: str | None = None
    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class ResponseBody(AdkBody):
    """What came of a function call, or the answer to a question."""

    id: str | None = None
    name: str = ""
    response: dict[str, Any] = Field(default_factory=dict)


class PartBody(BaseModel):
    """One part of a content. Exactly one of its fields has a value; kinds that are not listed are `extra`."""

    model_config = ConfigDict(
        extra="allow", alias_generator=AliasGenerator(validation_alias=to_camel), populate_by_name=True
    )

    text: str | None = None
    thought: bool | None = None
    inline_data: BlobBody | None = None
    file_data: FileBody | None = None
    function_call: CallBody | None = None
    function_response: ResponseBody | None = None


class ContentBody(AdkBody):
    """A message."""

    role: str | None = None
    parts: list[PartBody] = Field(default_factory=list[PartBody])


class RunBody(AdkBody):
    """Of `/run` and `/run_sse`."""

    app_name: str | None = None
    user_id: str
    session_id: str
    new_message: ContentBody | None = None
    streaming: bool = False
    state_delta: dict[str, Any] | None = None
    invocation_id: str | None = None
    custom_metadata: dict[str, Any] | None = None


class EventBody(AdkBody):
    """One event of a conversation that is restored."""

    author: str = ""
    content: ContentBody | None = None
    partial: bool | None = None
    actions: dict[str, Any] | None = None
    long_running_tool_ids: list[str] | None = None


class NewSessionBody(AdkBody):
    """A session to make."""

    session_id: str | None = None
    state: dict[str, Any] | None = None
    events: list[EventBody] | None = None
    options: dict[str, Any] | None = None


class StateBody(AdkBody):
    """A change of a session's state."""

    state_delta: dict[str, Any]


class LiveBody(AdkBody):
    """One message of a client of `/run_live`."""

    content: ContentBody | None = None
    blob: dict[str, Any] | None = None
    activity_start: dict[str, Any] | None = None
    activity_end: dict[str, Any] | None = None
    audio_stream_end: bool = False
    close: bool = False
    partial: bool = False
    state_delta: dict[str, Any] | None = None
