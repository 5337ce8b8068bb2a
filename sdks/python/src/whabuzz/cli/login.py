"""`whabuzz login`, `logout` and `whoami`: get a key that a person confirms in the console, revoke it, and show it."""

from __future__ import annotations

import platform
import time
import webbrowser

import click

from whabuzz.calls import Repeats, Settings, address_of
from whabuzz.cli.session import Session, json_option, pass_session
from whabuzz.errors import Unauthorized
from whabuzz.resources import DeviceLogins
from whabuzz.transport import Transport


@click.command()
@click.option("--base-url", help="The address of the service, for example https://api.example.in.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@click.option("--no-keyring", is_flag=True, help="Store the key in a file that only you can read.")
@json_option
@pass_session
def login(session: Session, base_url: str | None, no_browser: bool, no_keyring: bool) -> None:
    """Get a key: confirm this computer on a page of the console."""
    base_url = base_url or session.profiles.base_url(session.profile)
    if not base_url:
        raise click.UsageError("Give the address of the service: --base-url https://…")
    base_url = address_of(base_url)
    settings = Settings(base_url, {}, Repeats())
    device_logins = DeviceLogins(Transport(session.http(timeout=30.0), settings))
    started = device_logins.create({"client_name": _computer()})
    page = started["verification_url_complete"]
    session.tell(f"Your code is {started['user_code']}. Confirm it on this page:\n\n  {page}\n")
    if not no_browser:
        webbrowser.open(page)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        session.sleep(started["interval_seconds"])
        answer = device_logins.redeem({"device_code": started["device_code"]})
        if answer["status"] == "waiting":
            continue
        made = answer["api_key"]
        if answer["status"] != "confirmed" or made is None:
            break
        place = session.profiles.keep(
            session.profile, base_url=base_url, api_key=made["key"], use_keyring=not no_keyring
        )
        shown = {name: value for name, value in made.items() if name != "key"}
        ends = str(made["expires_at"])[:10]
        session.show(
            {**shown, "kept_in": place},
            f"Logged in to {made['tenant_name']} ({made['environment']}). The key {made['prefix']}… is kept in "
            f"{place} and ends on {ends}.",
        )
        return
    raise click.ClickException("The log-in was refused, or its ten minutes are over.")


@click.command()
@json_option
@pass_session
def logout(session: Session) -> None:
    """Revoke the key of this profile and delete the profile."""
    credentials = session.credentials
    if credentials.place == "environment":
        raise click.UsageError("The key is in WHABUZZ_API_KEY: unset it. It was not revoked.")
    prefix = credentials.api_key[:16]
    outcome = "is revoked"
    try:
        for key in session.client.api_keys.list():
            if key["prefix"] == prefix and not key.get("revoked_at"):
                session.client.api_keys.revoke(key["id"])
    except Unauthorized:
        outcome = "was not valid any more"
    session.profiles.forget(session.profile)
    session.show({"profile": session.profile, "prefix": prefix}, f"Logged out: {prefix}… {outcome}.")


@click.command()
@json_option
@pass_session
def whoami(session: Session) -> None:
    """Show the business, the environment and the place where the key is stored."""
    credentials = session.credentials
    tenant = session.client.tenant.get()
    told = {
        "tenant_id": tenant["id"],
        "name": tenant["name"],
        "environment": credentials.environment,
        "base_url": credentials.base_url,
        "prefix": credentials.api_key[:16],
        "kept_in": credentials.place,
    }
    session.show(
        told,
        f"{tenant['name']} ({credentials.environment}) at {credentials.base_url}, key {told['prefix']}… "
        f"from the {credentials.place}",
    )


def _computer() -> str:
    """This computer's name, which the page of the console shows to the person who confirms."""
    return (platform.node() or "a computer")[:100]
