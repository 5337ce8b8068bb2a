"""`whabuzz trigger`: cause an event in the sandbox, or send an example event to an endpoint."""

from __future__ import annotations

from typing import Any

import click

from whabuzz.cli.send import json_of
from whabuzz.cli.session import Session, columns, json_option, pass_session


@click.group()
def trigger() -> None:
    """Cause an event in the sandbox, or send an example event to an endpoint."""


@trigger.command()
@click.argument("text", required=False)
@click.option(
    "--from", "customer", default="919812345678", show_default=True, help="The customer who writes."
)
@click.option(
    "--number", "phone_number_id", help="The number that receives the message; by default, the first."
)
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
    """Send TEXT, or a message of another type, as a customer of the sandbox."""
    body: dict[str, Any] = {"from": customer, **(json_of(data) if data else {})}
    if text:
        body["text"] = text
    if phone_number_id:
        body["phone_number_id"] = phone_number_id
    if kind:
        body["type"] = kind
    known: Any = {name: body.pop(name) for name in ("from", "phone_number_id", "type") if name in body}
    made = session.client.sandbox.send_inbound(known, extra_body=body)
    session.show(made, f"{made['customer']} wrote {made['id']} to {made['phone_number_id']}")


@trigger.command()
@click.argument("event_type")
@click.option("--endpoint", "endpoint_id", required=True, help="The endpoint that gets the event.")
@json_option
@pass_session
def example(session: Session, event_type: str, endpoint_id: str) -> None:
    """Send an example of an EVENT_TYPE to one endpoint, signed like a delivery."""
    answer = session.client.webhooks.test(endpoint_id, {"event_type": event_type})  # type: ignore[typeddict-item]
    session.show(dict(answer), f"answered {answer['http_status']} in {answer['response_ms']} ms")


@trigger.command()
@click.argument("message_id")
@click.argument("status")
@click.option("--code", type=int, help="With failed: WhatsApp's error code.")
@json_option
@pass_session
def status(session: Session, message_id: str, status: Any, code: int | None) -> None:
    """Set the status of a message of the sandbox: sent, delivered, read, played or failed."""
    body: Any = {"message_id": message_id, "status": status, **({"code": code} if code else {})}
    made = session.client.sandbox.set_status(body)
    session.show(made, f"{made['id']} is {made['status']}")


@trigger.command()
@click.argument("template_id")
@click.argument("event", required=False)
@click.option("--reason", help="The reason, for an event such as REJECTED.")
@click.option("--quality", help="A new quality, for example RED.")
@click.option("--category", help="A new category, for example MARKETING.")
@json_option
@pass_session
def template(
    session: Session,
    template_id: str,
    event: str | None,
    reason: str | None,
    quality: str | None,
    category: str | None,
) -> None:
    """Review a template of the sandbox in Meta's place. EVENT is APPROVED, REJECTED, PAUSED and so on."""
    decided = {"event": event, "reason": reason, "quality": quality, "category": category}
    body: Any = {"template_id": template_id, **{name: value for name, value in decided.items() if value}}
    made = session.client.sandbox.decide_template(body)
    session.show(made, columns(made["id"], made["name"], made["status"], made["category"], made["quality"]))


@trigger.command()
@click.argument("event")
@click.option("--number", "phone_number_id", help="The number; by default, the first.")
@json_option
@pass_session
def number(session: Session, event: str, phone_number_id: str | None) -> None:
    """Change a number of the sandbox in Meta's place. EVENT is FLAGGED, DOWNGRADE, NAME_APPROVED and so on."""
    body: Any = {"event": event, **({"phone_number_id": phone_number_id} if phone_number_id else {})}
    made = session.client.sandbox.decide_number(body)
    session.show(made, columns(made["phone_number_id"], made["quality_rating"], made["name_status"]))
