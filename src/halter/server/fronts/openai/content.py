"""Content of messages: text, images and files, as parts."""

from __future__ import annotations

import base64
import binascii
from typing import Any, cast

from halter.errors import ConfigurationError
from halter.messages import File, Image, Part, Text
from halter.server.fronts.openai.errors import refusal
from halter.server.problems import Problem

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "summary_text": "text"}


def parts_of(content: Any, where: str) -> tuple[Part, ...]:
    """The parts of a user's message. Raises `Problem` 400."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(each, f"{where}[{place}]") for place, each in enumerate(_listed(content, where)))


def text_of(content: Any, where: str) -> str:
    """Content that must be text, joined. Raises `Problem` 400 for anything else."""
    if isinstance(content, str) or content is None:
        return content or ""
    parts = parts_of(content, where)
    if not all(isinstance(each, Text) for each in parts):
        raise refusal(f"{where}: only text is supported here", where)
    return "".join(each.text for each in parts if isinstance(each, Text))


def _listed(content: Any, where: str) -> list[dict[str, Any]]:
    listed = cast("list[Any]", content) if isinstance(content, list) else None
    if listed is None or not all(isinstance(each, dict) for each in listed):
        raise refusal(f"{where} must be text or a list of content parts", where)
    return cast("list[dict[str, Any]]", listed)


def _part(given: dict[str, Any], where: str) -> Part:
    kind = given.get("type")
    if isinstance(kind, str) and kind in _TEXTS:
        return Text(text_in(given, _TEXTS[kind], where))
    try:
        match kind:
            case "image_url":
                image = given.get("image_url")
                fields = cast("dict[str, Any]", image) if isinstance(image, dict) else {"url": image}
                return _image(fields.get("url"), fields.get("detail"), where)
            case "input_image":
                return _image(given.get("image_url"), given.get("detail"), where)
            case "file":
                return _file(given.get("file"), where)
            case "input_file":
                return _file(given, where)
            case _:
                raise refusal(f"{where}: content of type {kind!r} is not supported", where)
    except ConfigurationError as error:
        raise refusal(f"{where}: {error}", where) from error


def text_in(given: dict[str, Any], name: str, where: str) -> str:
    """A field that must be text. Raises `Problem` 400."""
    value = given.get(name)
    if not isinstance(value, str):
        raise refusal(f"{where}.{name} must be text", f"{where}.{name}")
    return value


def _image(url: Any, detail: Any, where: str) -> Image:
    if not isinstance(url, str):
        raise refusal(f"{where}: give the image's URL or data URL", where)
    detail = detail if detail in ("low", "high", "auto") else None
    if not url.startswith("data:"):
        return Image(url=_address(url, where), detail=detail)
    media_type, data = _data_of(url, where)
    return Image(data=data, media_type=media_type, detail=detail)


def _file(file: Any, where: str) -> File:
    given = cast("dict[str, Any]", file) if isinstance(file, dict) else {}
    name = given.get("filename")
    name = name if isinstance(name, str) else None
    if isinstance(data := given.get("file_data"), str):
        media_type, content = _data_of(data, where) if data.startswith("data:") else (None, _decoded(data, where))
        return File(data=content, name=name, media_type=media_type or "application/pdf")
    if isinstance(url := given.get("file_url"), str):
        return File(url=_address(url, where), name=name)
    raise refusal(f"{where}: give the file's file_data or file_url", where)


def _address(url: str, where: str) -> str:
    """An address that a provider fetches; never a file, which would be one of the model's own machine."""
    if not url.lower().startswith(("https://", "http://")):
        raise refusal(f"{where}: give an https: or data: URL, not {url[:40]!r}", where)
    return url


def _data_of(url: str, where: str) -> tuple[str | None, bytes]:
    """The media type and the bytes of a data URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise _not_base64(where)
    return head.removeprefix("data:").removesuffix(";base64").partition(";")[0] or None, _decoded(data, where)


def _decoded(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error) as error:
        raise _not_base64(where) from error


def _not_base64(where: str) -> Problem:
    return refusal(f"{where}: the data must be base64, as in data:image/png;base64,…", where)
