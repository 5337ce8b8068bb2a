"""`whabuzz deliveries`: webhook deliveries and their replay."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import click

from whabuzz.cli.options import limit_option, moment_ago, since_option, utc
from whabuzz.cli.session import Session, columns, json_option, moment, pass_session


@click.group()
def deliveries() -> None:
    """Look up webhook deliveries, and replay them."""


@deliveries.command("list")
@click.option("--endpoint", "endpoint_id", help="Only to this endpoint.")
@click.option("--event", "event_id", help="Only deliveries of this event.")
@click.option("--status", help="pending, delivered, failed or dead.")
@since_option
@limit_option
@json_option
@pass_session
def list_deliveries(
    session: Session,
    endpoint_id: str | None,
    event_id: str | None,
    status: Any,
    since: str | None,
    limit: int,
) -> None:
    """List deliveries, the newest first."""
    found = session.client.webhooks.list_deliveries(
        endpoint_id=endpoint_id, event_id=event_id, status=status, from_=since, limit=min(limit, 200)
    )
    session.show_each(
        (delivery for delivery, _ in zip(found, range(limit), strict=False)),
        lambda delivery: columns(
            delivery["id"],
            f"{delivery['event_type']:<16}",
            f"{delivery['status']:<9}",
            delivery["last_http_status"] or delivery["last_error"],
            f"{delivery['attempts']} attempts",
        ),
        nothing="No deliveries.",
    )


@deliveries.command()
@click.argument("delivery_ids", nargs=-1)
@click.option("--endpoint", "endpoint_id", help="Replay the events that this endpoint missed.")
@click.option(
    "--since",
    callback=moment_ago,
    default="1d",
    show_default=True,
    help="With --endpoint: the start of the range.",
)
@click.option(
    "--status", "statuses", multiple=True, help="With --endpoint: the statuses; failed and dead by default."
)
@click.option("--type", "types", multiple=True, help="With --endpoint: only events of this type.")
@click.option("--dry-run", is_flag=True, help="With --endpoint: only show how many deliveries would be sent.")
@click.option("--yes", is_flag=True, help="With --endpoint: send without asking first.")
@json_option
@pass_session
def replay(
    session: Session,
    delivery_ids: tuple[str, ...],
    endpoint_id: str | None,
    since: str,
    statuses: tuple[str, ...],
    types: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Send deliveries again: each DELIVERY_ID at once, or all deliveries that an endpoint missed."""
    if bool(delivery_ids) == bool(endpoint_id):
        raise click.UsageError("Give delivery ids, or --endpoint.")
    for delivery_id in delivery_ids:
        made = session.client.webhooks.replay_delivery(delivery_id)
        told = columns(made["id"], made.get("status"), made.get("last_http_status"))
        session.show_one_of_many(made, told)
    if endpoint_id is None:
        return
    body: Any = {
        "from": since,
        "to": utc(datetime.now(timezone.utc)),
        **({"status": list(statuses)} if statuses else {}),
        **({"event_types": list(types)} if types else {}),
    }
    preview: Any = session.client.webhooks.replay(endpoint_id, body, extra_body={"preview": True})
    told = f"{preview['count']} deliveries since {moment(preview['oldest'])}, {preview['expected_seconds']} s"
    if dry_run or not preview["count"]:
        session.show(preview, told)
        return
    if not yes:
        click.confirm(f"Replay {told}?", abort=True, err=True)
    queued: Any = session.client.webhooks.replay(endpoint_id, body)
    session.show(queued, f"{queued['queued']} deliveries are queued")
