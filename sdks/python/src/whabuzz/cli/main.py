"""The entry point `whabuzz` and its commands."""

from __future__ import annotations

import json
import os
from typing import Any

import click
from click.shell_completion import get_completion_class

from whabuzz.cli.api import api
from whabuzz.cli.batches import batch
from whabuzz.cli.deliveries import deliveries
from whabuzz.cli.listen import listen
from whabuzz.cli.login import login, logout, whoami
from whabuzz.cli.lookups import events, logs, messages, numbers
from whabuzz.cli.operations import Operations
from whabuzz.cli.send import send
from whabuzz.cli.session import Session
from whabuzz.cli.trigger import trigger
from whabuzz.errors import APIError, WhabuzzError


class ErrorsForPeople(click.Group):
    """Shows an error of the API as one sentence and its details as JSON, with exit status 1.

    Details can have what no later call shows, such as the secret of an endpoint whose ping failed.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WhabuzzError as error:
            shown = str(error)
            # WhatsApp's details are in the sentence.
            if isinstance(error, APIError) and error.details and error.source != "meta":
                shown += "\n" + json.dumps(error.details, indent=2, ensure_ascii=False)
            raise click.ClickException(shown) from error


@click.group(cls=ErrorsForPeople, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--profile", default="default", help="The profile to use, for example `live`.")
@click.version_option(package_name="whabuzz")
@click.pass_context
def whabuzz(ctx: click.Context, profile: str) -> None:
    """Send WhatsApp messages and receive their events, from the command line.

    Every command takes --json. WHABUZZ_BASE_URL and WHABUZZ_API_KEY together take precedence over the profile.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    session = ctx.ensure_object(Session)
    session.profile = profile


@whabuzz.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell.

    For example: whabuzz completion bash > ~/.local/share/bash-completion/completions/whabuzz
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - the choice names classes that click has
    click.echo(script(whabuzz, {}, "whabuzz", "_WHABUZZ_COMPLETE").source())


for command in (
    login,
    logout,
    whoami,
    send,
    listen,
    trigger,
    events,
    messages,
    deliveries,
    logs,
    numbers,
    batch,
    Operations("webhooks", resource="webhooks", help="Create, verify, change and test webhook endpoints."),
    Operations("templates", resource="templates", help="Submit, find, change and delete message templates."),
    Operations("media", resource="media", help="Upload, download and delete media files."),
    Operations("keys", resource="api_keys", help="Create, rotate and revoke API keys."),
    api,
):
    whabuzz.add_command(command)


def main() -> None:
    """Run the command line."""
    whabuzz(prog_name="whabuzz")
