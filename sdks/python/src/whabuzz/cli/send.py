"""`whabuzz send`: send one message: a text, a template, a file, or any message in JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from whabuzz.calls import media_type
from whabuzz.cli.session import Session, json_option, pass_session
from whabuzz.cli.uploads import uploaded_once

_KINDS = ("image", "video", "audio", "document", "sticker")
_WITH_CAPTION = {"image", "video", "document"}


def phone_number_of(text: str) -> str:
    """A phone number as people write it, without blanks, brackets, dots and hyphens."""
    return re.sub(r"[\s().-]", "", text)


def template_of(name: str, language: str, parameters: list[str]) -> dict[str, Any]:
    """A template message with these values as the parameters of its body. It has no `from` and `to`."""
    template: dict[str, Any] = {"name": name, "language": {"code": language}}
    if parameters:
        values = [{"type": "text", "text": value} for value in parameters]
        template["components"] = [{"type": "body", "parameters": values}]
    return {"type": "template", "template": template}


def json_of(text: str) -> dict[str, Any]:
    """The JSON object that an option gives: as JSON, as `@file`, or as `-` for the standard input, both in UTF-8.
    Raises click.UsageError.
    """
    try:
        # The computer's own encoding may be another one.
        if text == "-":
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8-sig")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--data: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError("--data must be a JSON object.")
    return found


@click.command()
@click.argument("to")
@click.argument("text", required=False)
@click.option("--from", "from_", help="The number that sends: its id or its phone number.")
@click.option("--template", help="Send this template.")
@click.option("--language", default="en", show_default=True, help="The template's language.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    help="A parameter of the template's body; repeat the option in order.",
)
@click.option(
    "--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Send a file."
)
@click.option(
    "--kind", type=click.Choice(_KINDS), help="The kind of the file; by default, the file's name decides."
)
@click.option("--data", help="The message in JSON, without from and to; @file or - reads it.")
@click.option("--idempotency-key", help="A repeat with the same key within 24 hours sends nothing.")
@json_option
@pass_session
def send(
    session: Session,
    to: str,
    text: str | None,
    from_: str | None,
    template: str | None,
    language: str,
    parameters: tuple[str, ...],
    file: Path | None,
    kind: str | None,
    data: str | None,
    idempotency_key: str | None,
) -> None:
    """Send one message TO a phone number or a business-scoped user id.

    TEXT is the text, or the caption of an image, a video or a document.
    """
    if sum(each is not None for each in (template, file, data)) > 1 or (text and (template or data)):
        raise click.UsageError("Give one of TEXT, --template, --file and --data.")
    from_ = from_ or session.only_number()
    if template:
        content = template_of(template, language, list(parameters))
    elif data:
        content = json_of(data)
    elif file:
        content = _file(session, file, kind, text, from_, idempotency_key)
    elif text:
        content = {"type": "text", "text": {"body": text}}
    else:
        raise click.UsageError("Give TEXT, --template, --file or --data.")
    number = phone_number_of(to)
    address = {"to": number} if number.lstrip("+").isdigit() else {"recipient": to}
    message: Any = {"from": from_, **address, **content}
    sent = session.client.messages.send(message, idempotency_key=idempotency_key)
    session.show(sent, f"sent {sent['messages'][0]['id']}")


def _file(
    session: Session, file: Path, kind: str | None, caption: str | None, from_: str, key: str | None
) -> dict[str, Any]:
    """Upload a file, and return a message with the file. It has no `from` and `to`."""
    guessed = media_type(file.name).partition("/")[0]
    kind = kind or (guessed if guessed in _KINDS else "document")
    if caption and kind not in _WITH_CAPTION:
        raise click.UsageError(f"WhatsApp shows no caption with this file ({kind}): leave out TEXT.")

    def upload() -> str:
        return session.client.media.upload(file=file, from_=from_)["id"]

    if key is None:
        content: dict[str, Any] = {"id": upload()}
    else:
        # With another media id, a repeat would be another message under the same key, which the service refuses.
        of_send = [session.credentials.base_url, from_, key]
        content = {"id": uploaded_once(session.profiles.beside("uploads.json"), of_send, file, upload)}
    if kind == "document":
        content["filename"] = file.name
    if caption:
        content["caption"] = caption
    return {"type": kind, kind: content}
