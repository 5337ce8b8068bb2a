"""Commands that look up events, messages, calls and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any

import click

from whabuzz.cli.operations import Operations
from whabuzz.cli.options import limit_option, since_option
from whabuzz.cli.session import Session, columns, json_option, moment, pass_session

POLL_SECONDS = 1.0
POLLED = "/v1/requests"
"""The route that `logs tail` itself calls."""
LONGEST_CALL = timedelta(minutes=1)
"""How long a call may last and still be printed by `logs tail`. A call has the time of its beginning, and is logged at
its end.
"""
MOST_OF_A_POLL = 2_000
"""How many calls `logs tail` reads in one poll."""


@click.group()
def events() -> None:
    """Look up events."""


@events.command("list")
@click.option("--type", "kind", help="Only events of this type, for example message.inbound.")
@click.option("--wamid", help="Only events of this message.")
@click.option("--customer", "wa_id", help="Only events of this customer.")
@since_option
@limit_option
@json_option
@pass_session
def list_events(
    session: Session, kind: str | None, wamid: str | None, wa_id: str | None, since: str | None, limit: int
) -> None:
    """List events, the newest first."""
    found = session.client.events.list(
        type=kind, wamid=wamid, wa_id=wa_id, from_=since, limit=min(limit, 200)
    )
    session.show_each(
        (event for event, _ in zip(found, range(limit), strict=False)),
        lambda event: columns(
            moment(event["created_at"]),
            f"{event['type']:<16}",
            event["id"],
            event.get("wa_id") or event.get("user_id"),
            event.get("status"),
        ),
        nothing="No events.",
    )


@events.command("get")
@click.argument("event_id")
@json_option
@pass_session
def get_event(session: Session, event_id: str) -> None:
    """Show an event with its body and deliveries."""
    found = session.client.events.get(event_id)
    session.as_json = True
    session.show(found, event_id)


@click.group()
def messages() -> None:
    """Look up messages."""


@messages.command("list")
@click.option("--status", help="Only messages with this status, for example failed.")
@click.option("--to", "customer", help="Only messages from or to this customer.")
@click.option("--number", "phone_number_id", help="Only messages of this number.")
@since_option
@limit_option
@json_option
@pass_session
def list_messages(
    session: Session,
    status: Any,
    customer: str | None,
    phone_number_id: str | None,
    since: str | None,
    limit: int,
) -> None:
    """List sent and received messages, the newest first."""
    found = session.client.messages.list(
        status=status, wa_id=customer, phone_number_id=phone_number_id, from_=since, limit=min(limit, 200)
    )
    session.show_each(
        (message for message, _ in zip(found, range(limit), strict=False)),
        lambda message: columns(
            moment(message["created_at"]),
            "→" if message["direction"] == "outbound" else "←",
            message.get("wa_id") or message.get("user_id"),
            message.get("type"),
            message["status"],
            message.get("error_code") or "",
            message["id"],
        ),
        nothing="No messages.",
    )


@messages.command("get")
@click.argument("message_id")
@json_option
@pass_session
def get_message(session: Session, message_id: str) -> None:
    """Show a message: its status, the times of its statuses, and why it failed.

    MESSAGE_ID is the wamid or the id in the list.
    """
    message: dict[str, Any] = dict(session.client.messages.get(message_id))
    lines = [
        columns(message["direction"], message.get("type"), message["status"], message["wamid"]),
        *(
            f"  {name.removesuffix('_at'):<10}{moment(message[name])}"
            for name in ("created_at", "accepted_at", "sent_at", "delivered_at", "read_at", "failed_at")
            if message.get(name)
        ),
    ]
    if message.get("error_code"):
        lines.append(f"  error     {message['error_code']}")
    lines += [f"  event     {event['id']}  {event['type']}" for event in message.get("events", [])]
    session.show(message, "\n".join(lines))


@click.group()
def logs() -> None:
    """Look at the calls that were made with your keys."""


@logs.command()
@click.option("--errors", is_flag=True, help="Only calls that were refused or failed.")
@click.option("--no-follow", is_flag=True, help="Print the newest calls and stop.")
@limit_option
@json_option
@pass_session
def tail(session: Session, errors: bool, no_follow: bool, limit: int) -> None:
    """Print calls as they are made, with their status and duration. Press Ctrl-C to stop."""
    own = session.credentials.api_key[:16]

    def is_wanted(call: Any) -> bool:
        """Whether to print the call: not if it is a poll of this command, and with --errors only if it failed."""
        is_poll = (call["route"], call["key_prefix"]) == (POLLED, own)
        return not is_poll and (call["status"] >= 400 or not errors)

    try:
        seen = set() if no_follow else {call["id"] for call in _recent(session)}
        fresh = list(islice(filter(is_wanted, _newest(session, errors=errors, limit=limit)), limit))
        while True:
            for call in reversed(fresh):
                _show_call(session, call)
            if no_follow:
                return
            session.sleep(POLL_SECONDS)
            seen.update(call["id"] for call in fresh)
            recent = _recent(session)
            fresh = [call for call in recent if call["id"] not in seen and is_wanted(call)]
            seen = {each for each in seen if not recent or each >= recent[-1]["id"]}
            seen.update(call["id"] for call in recent)
    except KeyboardInterrupt:
        return


def _newest(session: Session, *, errors: bool, limit: int) -> Iterator[Any]:
    """The calls in the log, or those that were refused or failed, the newest first."""
    lists = [
        session.client.requests.list(status=status, limit=min(max(limit, 50), 200))
        for status in (("4xx", "5xx") if errors else (None,))
    ]
    return merge(*lists, key=lambda call: call["id"], reverse=True)


def _recent(session: Session) -> list[Any]:
    """The calls that began within `LONGEST_CALL` before the newest, the newest first."""
    found: list[Any] = []
    for call in islice(session.client.requests.list(limit=200), MOST_OF_A_POLL):
        if found and _begun(call) < _begun(found[0]) - LONGEST_CALL:
            break
        found.append(call)
    return found


def _begun(call: Any) -> datetime:
    return datetime.fromisoformat(call["created_at"].replace("Z", "+00:00"))


def _show_call(session: Session, call: Any) -> None:
    line = columns(
        moment(call["created_at"]),
        call["status"],
        f"{call['method']:<6}",
        call["route"],
        call["error_code"] or "",
        f"{call['service_ms']:.0f} ms",
        call["id"],
    )
    session.show_one_of_many(call, line)


@click.group(cls=Operations, resource="numbers")
def numbers() -> None:
    """Look at your phone numbers, connect them, and set them up."""


@numbers.command("list")
@json_option
@pass_session
def list_numbers(session: Session) -> None:
    """List the numbers of this environment with their states."""
    session.show_each(
        session.client.numbers.list().first_page(),
        lambda number: columns(
            number["phone_number_id"],
            number.get("display_phone_number"),
            number.get("connection_state"),
            number.get("connection_detail") or "",
            number.get("quality_rating"),
        ),
        nothing="No numbers. In the sandbox, `whabuzz trigger inbound Hello` makes the first.",
    )


@numbers.command()
@click.argument("phone_number_id")
@json_option
@pass_session
def health(session: Session, phone_number_id: str) -> None:
    """Show whether a number can send, and what Meta objects to."""
    found = session.client.numbers.get_health(phone_number_id)
    lines = [columns(found["phone_number_id"], found["connection_state"], found["can_send_message"])]
    for entity in found["entities"]:
        lines.append(f"  {columns(entity['entity_type'], entity['can_send_message'])}")
        lines += [f"    {columns(*reason.values())}" for reason in entity["reasons"]]
    session.show(found, "\n".join(lines))
