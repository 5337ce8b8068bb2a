"""`whabuzz trigger`: make something happen in the test world, or send an example event to an endpoint."""

from __future__ import annotations

from typing import Any

import click

from whabuzz.cli.send import json_of
from whabuzz.cli.session import Session, json_option, pass_session


@click.group()
def trigger() -> None:
    """Make something happen: a customer writes to the test world, an endpoint gets an example."""


@trigger.command()
@click.argument("text", required=False)
@click.option(
    "--from", "customer", default="919812345678", show_default=True, help="The customer who writes."
)
@click.option("--number", "phone_number_id", help="The number that is written to; else the first.")
@click.option("--type", "kind", help="The message's type, for example image, button or location.")
@click.option("--data", help="More members of the message in JSON; @file or - reads them.")
@json_option
@pass_session
def inbound(
    session: Session,
    text: str | None,
    customer: str,
    phone_number_id: str | None,
    kind: str | None,
    data: str | None,
) -> None:
    """Let a customer of the test world write TEXT, or a message of another type."""
    body: dict[str, Any] = {"from": customer, **(json_of(data) if data else {})}
    if text:
        body["text"] = text
    if phone_number_id:
        body["phone_number_id"] = phone_number_id
    if kind:
        body["type"] = kind
    known: Any = {name: body.pop(name) for name in ("from", "phone_number_id", "type") if name in body}
    made = session.client.test_world.send_inbound(known, extra_body=body)
    session.show(made, f"{made['customer']} wrote {made['id']} to {made['phone_number_id']}")


@trigger.command()
@click.argument("event_type")
@click.option("--endpoint", "endpoint_id", required=True, help="The endpoint that gets it.")
@json_option
@pass_session
def example(session: Session, event_type: str, endpoint_id: str) -> None:
    """Send an example of an EVENT_TYPE to one endpoint, signed as deliveries are."""
    answer = session.client.webhooks.test(endpoint_id, {"event_type": event_type})  # type: ignore[typeddict-item]
    session.show(dict(answer), f"answered {answer['http_status']} in {answer['response_ms']} ms")
