"""What a provider can do, as data: what its adapter has words for.

It is checked when a model or an agent is made, so that a run never finds out half-way; `docs/models.md` is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from halter.errors import ConfigurationError
from halter.messages import File, Image, Message, ToolResult
from halter.request import OnlyTool, OutputSchema, Settings, ToolChoice, ToolSpec

WEB_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))  # all that OpenAI and Anthropic read
NO_DOCUMENTS = ("audio/", "video/", "image/")


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter has words for. `settings`: the names of the fields of `Settings` that it sends.

    `images`, `files`: as parts of a user's message, and returned by tools. `image_types`: the media types of images
    that are sent as bytes, if not all; `refused_files`: beginnings of media types that no file may have.
    `tools`; `tool_choice`: `required`, or one by name.
    `output`: answers held to a schema. Whether the very model behind the name does it too, its provider says.
    `other_name`: the prefix by which the same models have other settings, if there is one.
    """

    settings: frozenset[str]
    images: bool = False
    files: bool = False
    image_types: frozenset[str] | None = None
    refused_files: tuple[str, ...] = ()
    tools: bool = False
    tool_choice: bool = False
    output: bool = False
    other_name: str = ""

    def without(self, *settings: str) -> Features:
        """The same, without some settings."""
        return msgspec.structs.replace(self, settings=self.settings - set(settings))

    def adding(self, *settings: str) -> Features:
        """The same, with more settings."""
        return msgspec.structs.replace(self, settings=self.settings | set(settings))

    def check(
        self,
        model: str,
        settings: Settings,
        *,
        tools: Collection[ToolSpec] = (),
        tool_choice: ToolChoice | None = None,
        output: OutputSchema | None = None,
        has_own_tools: bool = False,
    ) -> None:
        """Raises `ConfigurationError` that names what `model` cannot do, and how to go on.

        `has_own_tools`: tools that the provider runs itself are sent with each request.
        """
        for name in settings.given():
            if name not in self.settings:
                other = f"; {self.other_name}:{model.partition(':')[2]} may have it" if self.other_name else ""
                has = ", ".join(sorted(self.settings))
                raise ConfigurationError(f"{model} has no setting {name!r}{other}; it has {has}")
        if tools and not self.tools:
            raise ConfigurationError(f"{model} cannot call tools")
        if not isinstance(tool_choice, OnlyTool) and tool_choice not in (None, "auto", "none", "required"):
            raise ConfigurationError(
                f"tool_choice must be 'auto', 'none', 'required' or OnlyTool(name), not {tool_choice!r}"
            )
        if tool_choice not in (None, "auto") and not self.tool_choice:
            raise ConfigurationError(f"{model} cannot be told which tool to call: leave tool_choice out")
        if tool_choice == "required" and not (tools or has_own_tools):
            raise ConfigurationError("tool_choice='required' needs a tool")
        if isinstance(tool_choice, OnlyTool) and tool_choice.name not in (tool.name for tool in tools):
            raise ConfigurationError(f"tool_choice names {tool_choice.name!r}, which is none of the tools")
        if output is not None and not self.output:
            raise ConfigurationError(f"{model} cannot hold its answer to a schema: leave output out")

    def check_parts(self, model: str, messages: Iterable[Message]) -> None:
        """Raises `ConfigurationError` for an image or a file that `model` refuses, or that no user or tool has sent."""
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolResult):
                    for attached in part.attachments:
                        self.check_part(model, attached)
                elif isinstance(part, Image | File):
                    self.check_part(model, part)
                    if message.role != "user":
                        kind = "images" if isinstance(part, Image) else "files"
                        raise ConfigurationError(
                            f"{kind} are parts of a user's message, not of one with the role {message.role!r}"
                        )

    def check_part(self, model: str, part: Image | File) -> None:
        """Raises `ConfigurationError` for an image or a file that `model` refuses."""
        kind = "images" if isinstance(part, Image) else "files"
        if not getattr(self, kind):
            raise ConfigurationError(f"{model} takes no {kind}: leave them out, or ask another model")
        sent = media_type_of(part)
        if isinstance(part, Image):
            if sent is not None and self.image_types is not None and sent not in self.image_types:
                taken = ", ".join(sorted(self.image_types))
                raise ConfigurationError(f"{model} takes images of the types {taken}, not {sent}: convert it")
        elif sent is not None and sent.startswith(self.refused_files):
            raise ConfigurationError(f"{model} takes documents as files, not {sent}: ask another model")


def media_type_of(part: Image | File) -> str | None:
    """The media type of bytes that are sent along, also as a `data:` URL; `None` for what the provider fetches."""
    if part.url is not None and part.url[:5].lower() == "data:":
        named = re.match(r"[^;,]*", part.url[5:])
        return (named[0] if named else "").strip().lower() or part.media_type
    return None if part.data is None else (part.media_type or "").partition(";")[0].strip().lower()
