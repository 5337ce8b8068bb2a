"""Checks of the files in a message. A send is refused if the number does not have the file. A send is accepted but
fails later if the file's type does not fit (upstream fact 1.2).
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from simulator.errors import invalid_parameter
from simulator.graph.dispatch import Call
from simulator.world.records import MEDIA_TYPES, Number

TYPES: dict[str, tuple[str, ...]] = {
    "image": ("image/jpeg", "image/png"),
    "sticker": ("image/webp",),
    "audio": ("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg", "audio/opus"),
    "video": ("video/mp4", "video/3gpp"),
}
"""MIME types by kind of message. A document may have every type that can be uploaded."""

_SUFFIXES: dict[str, frozenset[str]] = {
    "image": frozenset({"jpeg", "jpg", "png"}),
    "sticker": frozenset({"webp"}),
    "audio": frozenset({"aac", "amr", "m4a", "mp3", "mp4", "ogg", "opus"}),
    "video": frozenset({"3gp", "mp4"}),
}
_OF_FILES = frozenset(
    {"avi", "bmp", "gif", "heic", "mov", "pdf", "svg", "wav", "webm"}.union(*_SUFFIXES.values())
)
"""Suffixes that show the type of a file. Other links, such as those of scripts, may lead to any type."""


def check_media_ids(call: Call, number: Number, body: Mapping[str, Any]) -> None:
    """Reject a message with a media id that is unknown, deleted, expired, or another number's."""
    for path, _, file in _files(body):
        if file.get("id") is None:
            continue
        media = call.sim.state.media.get(str(file["id"]))
        if media is None or media.phone_number_id != number.id:
            raise invalid_parameter(
                f"Param {path}['id'] is not a valid whatsapp business account media attachment ID"
            )


def media_problem(call: Call, body: Mapping[str, Any]) -> str | None:
    """The reason why the file of an accepted message cannot be sent, or None. With a reason, the message fails with
    131053.
    """
    for _, kind, file in _files(body):
        if file.get("id") is None:
            if problem := _link_problem(kind, str(file.get("link"))):
                return problem
            continue
        media = call.sim.state.media.get(str(file["id"]))
        base = media.mime_type.partition(";")[0].strip().lower() if media else ""
        if kind in TYPES and base not in TYPES[kind]:
            return f"Unsupported {kind.capitalize()} mime type {base}. Please use one of {', '.join(TYPES[kind])}."
    return None


def _link_problem(kind: str, link: str) -> str | None:
    """The reason why Meta cannot send the file at a link, as far as the link shows it."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return "Downloading media from weblink failed: the link is not a URL"
    if "." not in (parts.hostname or ""):
        return "Downloading media from weblink failed: its host is not on the internet"
    suffix = parts.path.rpartition(".")[2].lower()
    if kind in _SUFFIXES and suffix in _OF_FILES - _SUFFIXES[kind]:
        return f"Unsupported {kind.capitalize()} type {suffix}. Please use one of {', '.join(TYPES[kind])}."
    return None


def _files(body: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The path, kind and content of each file in a message: its own file, and files in a header or in template
    parameters.
    """
    kind = body.get("type")
    content = body.get(kind) if isinstance(kind, str) else None
    if not isinstance(content, Mapping):
        return
    if kind in MEDIA_TYPES:
        yield str(kind), str(kind), content
    elif kind == "interactive":
        yield from _in_parameter("interactive['header']", content.get("header"))
        action = content.get("action")
        cards = action.get("cards") if isinstance(action, Mapping) else None
        for place, card in enumerate(cards if isinstance(cards, list) else ()):
            if isinstance(card, Mapping):
                yield from _in_parameter(
                    f"interactive['action']['cards'][{place}]['header']", card.get("header")
                )
    elif kind == "template":
        yield from _in_components("template", content.get("components"))


def _in_components(path: str, components: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for place, component in enumerate(components if isinstance(components, list) else ()):
        if not isinstance(component, Mapping):
            continue
        where = f"{path}['components'][{place}]"
        parameters = component.get("parameters")
        for number, parameter in enumerate(parameters if isinstance(parameters, list) else ()):
            yield from _in_parameter(f"{where}['parameters'][{number}]", parameter)
        cards = component.get("cards")
        for number, card in enumerate(cards if isinstance(cards, list) else ()):
            if isinstance(card, Mapping):
                yield from _in_components(f"{where}['cards'][{number}]", card.get("components"))


def _in_parameter(path: str, parameter: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    kind = parameter.get("type") if isinstance(parameter, Mapping) else None
    kind = kind.lower() if isinstance(kind, str) else None
    file = parameter.get(kind) if kind in MEDIA_TYPES else None
    if isinstance(file, Mapping):
        yield f"{path}['{kind}']", str(kind), file
