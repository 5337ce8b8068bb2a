"""`whabuzz listen`: print every event, and post it to a program on this computer as a signed webhook."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click
import httpx

from whabuzz.calls import Streamed
from whabuzz.cli.session import Session, columns, json_option, pass_session
from whabuzz.stream import EventStream
from whabuzz.webhooks import signed_headers

ANSWER_SECONDS = 15.0
"""How long the program may take to answer. The service gives endpoints the same time."""


@dataclass(frozen=True)
class Forwarded:
    """The local program's answer to an event."""

    status: int | None
    ms: int
    error: str | None = None

    @property
    def text(self) -> str:
        """The answer as printed after the event."""
        return f"→ {self.status if self.error is None else self.error} ({self.ms} ms)"


class Forwarder:
    """Posts events to a local program as the service posts them to an endpoint. Waits while the program is not running,
    so no event is lost.
    """

    def __init__(
        self, url: str, *, secret: str, sleep: Callable[[float], None], tell: Callable[[str], None]
    ) -> None:
        self._url, self._secret, self._sleep, self._tell = url, secret, sleep, tell
        # Ignore proxies named in the environment, because they cannot reach this computer.
        self._http = httpx.Client(timeout=httpx.Timeout(ANSWER_SECONDS, connect=5.0), trust_env=False)

    def post(self, streamed: Streamed) -> Forwarded:
        """Post one event. Retries while no program answers at the URL. Any status counts as an answer."""
        is_first = True
        while True:
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "whabuzz-cli",
                "X-Service-Attempt": "1",
                "X-Service-Event-Type": streamed.event["type"],
                **signed_headers(self._secret, id_=streamed.event["id"], body=streamed.body),
            }
            started = time.monotonic()
            try:
                answer = self._http.post(self._url, content=streamed.body, headers=headers)
            except httpx.ConnectError:
                if is_first:
                    self._tell(f"Nothing answers at {self._url}: waiting for it …")
                is_first = False
                self._sleep(1.0)
            except httpx.HTTPError as failure:
                return Forwarded(None, _since(started), type(failure).__name__)
            else:
                return Forwarded(answer.status_code, _since(started))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def local_url(text: str) -> str:
    """The URL for `3000`, `localhost:3000/hook` or a whole URL. Raises click.UsageError."""
    url = f"localhost:{text}" if text.isdigit() else text
    if "://" not in url:
        url = f"http://{url}"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise click.UsageError(f"--forward-to: {error}") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise click.UsageError("--forward-to takes an address such as localhost:3000/webhook.")
    return str(parsed)


def new_secret() -> str:
    """A signing secret in the same form as an endpoint's secret."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


@click.command()
@click.option("--forward-to", help="Post each event to this address, for example localhost:3000/webhook.")
@click.option(
    "--secret", envvar="WHABUZZ_WEBHOOK_SECRET", help="Sign with this secret (whsec_…), instead of a new one."
)
@click.option("--type", "types", multiple=True, help="Only events of this type; repeat it for more.")
@click.option("--number", "phone_number_id", help="Only events of this number.")
@click.option("--after", help="Begin after this event (evt_…), instead of now.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many events.")
@json_option
@pass_session
def listen(
    session: Session,
    forward_to: str | None,
    secret: str | None,
    types: tuple[str, ...],
    phone_number_id: str | None,
    after: str | None,
    count: int | None,
) -> None:
    """Print every event as it happens, and post it to a program on this computer.

    The program gets the same signed webhooks as a public endpoint. After a broken connection, the stream continues
    where it was. Ctrl-C stops listening and prints the command to continue later.
    """
    credentials = session.credentials
    forwarder = None
    if forward_to:
        url = local_url(forward_to)
        secret = secret or new_secret()
        forwarder = Forwarder(url, secret=secret, sleep=session.sleep, tell=session.tell)
        session.tell(f"Posting to {url}, signed with {secret}")
    filters = {"type": ",".join(types), "phone_number_id": phone_number_id or ""}
    stream = EventStream(
        session.http(timeout=30.0),
        url=f"{credentials.base_url}/v1/events/stream",
        headers={"Authorization": f"Bearer {credentials.api_key}"},
        filters={name: value for name, value in filters.items() if value},
        place=after,
        sleep=session.sleep,
        tell=session.tell,
    )
    session.tell(f"Listening to {credentials.environment} events at {credentials.base_url}. Ctrl-C ends.")
    try:
        for handled, streamed in enumerate(stream, start=1):
            forwarded = forwarder.post(streamed) if forwarder else None
            session.show_one_of_many(
                {"event": streamed.event, "forwarded": asdict(forwarded) if forwarded else None},
                line_of(streamed.event, forwarded),
            )
            if handled == count:
                return
    except KeyboardInterrupt:
        session.tell(
            f"\nStopped. To continue: whabuzz listen --after {stream.place}" if stream.place else "\nStopped."
        )
    finally:
        if forwarder:
            forwarder.close()


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def line_of(event: Mapping[str, Any], forwarded: Forwarded | None) -> str:
    """An event in one line: its time, type, id, customer and content, and the local program's answer."""
    data = event.get("data") or {}
    status = data.get("status")
    detail = status.get("status") if isinstance(status, dict) else status
    message = data.get("message")
    if isinstance(message, dict):
        text = message.get("text")
        detail = text["body"] if isinstance(text, dict) and "body" in text else message.get("type")
    customer = event.get("wa_id") or event.get("user_id")
    parts = [event["created_at"][11:19], f"{event['type']:<16}", event["id"]]
    parts += [str(part)[:60] for part in (customer, detail) if part]
    return columns(*parts, *([forwarded.text] if forwarded else []))
