"""`whabuzz api`: any operation of the API by method and path."""

from __future__ import annotations

import json
import sys
from urllib.parse import parse_qs, urlsplit

import click

from whabuzz.cli.send import json_of
from whabuzz.cli.session import Session, json_option, pass_session

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@click.command()
@click.argument("method", type=click.Choice(_METHODS, case_sensitive=False))
@click.argument("path")
@click.option("--data", help="The body in JSON; @file or - reads it.")
@click.option(
    "--idempotency-key",
    help="For a send: a repeat with the same key within 24 hours sends nothing.",
)
@json_option
@pass_session
def api(session: Session, method: str, path: str, data: str | None, idempotency_key: str | None) -> None:
    """Call METHOD and PATH of the API, as the reference names them, and print the answer unchanged.

    For example: whabuzz api GET "/v1/events?limit=2"
    """
    if not path.startswith("/"):
        raise click.UsageError("PATH begins with a slash, for example /v1/numbers.")
    address = urlsplit(f"//host{path}")
    answer = session.client.request(
        method,
        address.path,
        query=parse_qs(address.query, keep_blank_values=True),
        body=None if data is None else json_of(data),
        idempotency_key=idempotency_key,
    )
    if "json" in answer.headers.get("content-type", ""):
        click.echo(json.dumps(answer.json(), indent=2, ensure_ascii=False))
    else:
        sys.stdout.buffer.write(answer.content)
