"""Options that several commands share: `--since` and `--limit`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import click

_SPAN = re.compile(r"(\d{1,5})([mhd])")
_MINUTES = {"m": 1, "h": 60, "d": 1440}


def moment_ago(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Convert `30m`, `2h` or `7d` (before now), or a time in ISO 8601, to the API's form. Raises click.BadParameter."""
    if value is None:
        return None
    if span := _SPAN.fullmatch(value):
        return utc(datetime.now(timezone.utc) - timedelta(minutes=int(span[1]) * _MINUTES[span[2]]))
    try:
        return utc(datetime.fromisoformat(value.replace("Z", "+00:00")))
    except ValueError:
        raise click.BadParameter(
            "give 30m, 2h, 7d, or a moment such as 2026-11-22T09:00:00Z.", context, parameter
        ) from None


def utc(moment: datetime) -> str:
    """A time in the API's form: ISO 8601 in UTC, with `Z`."""
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


since_option = click.option(
    "--since", callback=moment_ago, help="Since 30m, 2h or 7d ago, or since a moment."
)
limit_option = click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True)
