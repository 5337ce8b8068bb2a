"""State and helpers of all commands: the client with its credentials, and the form of the output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
import httpx

from whabuzz.cli.profiles import Credentials, Profiles
from whabuzz.client import Whabuzz

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Session:
    """One run of the command line."""

    profile: str = "default"
    as_json: bool = False
    profiles: Profiles = field(default_factory=Profiles)
    transport: httpx.BaseTransport | None = None
    """The transport of the calls to the service. The default is the network."""
    sleep: Callable[[float], None] = time.sleep
    _client: Whabuzz | None = field(default=None, repr=False)

    @property
    def credentials(self) -> Credentials:
        """The key and the service of this run. Raises click.ClickException when nobody is logged in."""
        found = self.profiles.credentials(self.profile)
        if found is None:
            raise click.ClickException(
                "You are not logged in: run `whabuzz login --base-url URL`, or set WHABUZZ_BASE_URL and "
                "WHABUZZ_API_KEY."
            )
        return found

    @property
    def client(self) -> Whabuzz:
        """A client of the API with the profile's key."""
        if self._client is None:
            credentials = self.credentials
            self._client = Whabuzz(
                credentials.api_key, credentials.base_url, http_client=self.http(timeout=30.0)
            )
        return self._client

    def http(self, *, timeout: float) -> httpx.Client:
        """An HTTP client without credentials."""
        return httpx.Client(
            timeout=httpx.Timeout(timeout, connect=5.0),
            transport=self.transport,
            headers={"User-Agent": "whabuzz-cli"},
        )

    def show(self, item: Mapping[str, Any], line: str) -> None:
        """Print one object: with `--json` as indented JSON, otherwise as a line for people."""
        click.echo(json.dumps(item, indent=2, ensure_ascii=False) if self.as_json else line)

    def show_each(
        self, items: Iterable[Mapping[str, Any]], line: Callable[[Any], str], *, nothing: str
    ) -> None:
        """Print each object in a line, or as JSON with `--json`. If there are no objects, print `nothing`, except with
        `--json`.
        """
        shown = 0
        for item in items:
            self.show_one_of_many(item, line(item))
            shown += 1
        if not shown and not self.as_json:
            click.echo(nothing)

    def show_one_of_many(self, item: Mapping[str, Any], line: str) -> None:
        """Print one object of a list in one line, which is JSON with `--json`."""
        click.echo(json.dumps(item, ensure_ascii=False) if self.as_json else line)

    def tell(self, text: str) -> None:
        """Print a remark to the standard error stream, not to the output."""
        click.echo(text, err=True)

    def only_number(self) -> str:
        """The connected number, for sends without `--from`. Raises click.UsageError unless there is exactly one."""
        listed = self.client.numbers.list().first_page()
        connected = [
            number["phone_number_id"] for number in listed if number.get("connection_state") == "connected"
        ]
        if len(connected) != 1:
            known = ", ".join(connected) or "none is connected"
            raise click.UsageError(f"Choose the number that sends with --from. Yours: {known}.")
        return connected[0]


pass_session = click.make_pass_decorator(Session)


def json_option(command: Command) -> Command:
    """Decorate a command with the option `--json`."""

    def wanted(context: click.Context, _: click.Parameter, value: bool) -> None:
        session = context.find_object(Session)
        if value and session is not None:
            session.as_json = True

    return click.option(
        "--json", is_flag=True, expose_value=False, callback=wanted, help="Print JSON, for other programs."
    )(command)


def moment(text: str | None) -> str:
    """A time of the API as a column: `2026-11-22 09:15:03`, or a dash when there is none."""
    return text[:19].replace("T", " ") if text else "-"


_COLOURS = {
    **dict.fromkeys(("accepted", "active", "connected", "delivered", "read", "APPROVED", "GREEN"), "green"),
    **dict.fromkeys(("paused", "pending", "unverified", "PENDING", "YELLOW"), "yellow"),
    **dict.fromkeys(("dead", "disabled", "failed", "REJECTED", "RED"), "red"),
}


def columns(*values: Any) -> str:
    """The values in one line. Known statuses have a colour, and None becomes a dash."""
    texts = ("-" if value is None else str(value) for value in values)
    return "  ".join(
        click.style(text, fg=colour) if (colour := _COLOURS.get(text.strip())) else text for text in texts
    )
