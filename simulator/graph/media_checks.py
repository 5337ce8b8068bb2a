"""Checks of the files in a message. A send is refused if the number does not have the file. A send is accepted but
fails later if the file's type does not fit (upstream fact 1.2).
"""

from collections.abc import Iterator, Mapping
from typing import Any

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


def check_media_ids(call: Call, number: Number, body: Mapping[str, Any]) -> None:
    """Reject a message with a media id that is unknown, deleted, expired, or another number's."""
    for path, _, media_id in _media_ids(body):
        media = call.sim.state.media.get(media_id)
        if media is None or media.phone_number_id != number.id:
            raise invalid_parameter(
                f"Param {path}['id'] is not a valid whatsapp business account media attachment ID"
            )


def media_problem(call: Call, body: Mapping[str, Any]) -> str | None:
    """The reason why the file of an accepted message cannot be sent, or None. With a reason, the message fails with
    131053.
    """
    for _, kind, media_id in _media_ids(body):
        media = call.sim.state.media.get(media_id)
        base = media.mime_type.partition(";")[0].strip().lower() if media else ""
        if kind in TYPES and base not in TYPES[kind]:
            return f"Unsupported {kind.capitalize()} mime type {base}. Please use one of {', '.join(TYPES[kind])}."
    return None


def _media_ids(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The path, kind and id of each file that a message names by id: its own file, and files in a header or in template
    parameters.
    """
    kind = body.get("type")
    content = body.get(kind) if isinstance(kind, str) else None
    if not isinstance(content, Mapping):
        return
    if kind in MEDIA_TYPES and content.get("id") is not None:
        yield str(kind), str(kind), str(content["id"])
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


def _in_components(path: str, components: Any) -> Iterator[tuple[str, str, str]]:
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


def _in_parameter(path: str, parameter: Any) -> Iterator[tuple[str, str, str]]:
    kind = parameter.get("type") if isinstance(parameter, Mapping) else None
    kind = kind.lower() if isinstance(kind, str) else None
    file = parameter.get(kind) if kind in MEDIA_TYPES else None
    if isinstance(file, Mapping) and file.get("id") is not None:
        yield f"{path}['{kind}']", str(kind), str(file["id"])
