"""The commands of docs/quickstart.md in one shell. The clone and the downloads are prepared."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.conftest import ROOT, Stack, until
from tests.free_ports import free_port
from tests.pages import blocks

pytestmark = pytest.mark.e2e

DONE = "__done__"


class Shell:
    """One shell session. Commands see the variables and jobs of earlier commands."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str) -> str:
        """Run a command. Returns the output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\necho; echo {DONE}\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == DONE:
                break
            lines.append(line)
        return "".join(lines).strip()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run("kill $(jobs -p)")
    shell.process.communicate(timeout=20)


def python_at(path: Path) -> None:
    """Make this interpreter and its packages available at another path."""
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)


def listens(port: int) -> bool:
    try:
        return requests.post(f"http://127.0.0.1:{port}/", data=b"", timeout=5).status_code == 401
    except requests.ConnectionError:
        return False


def test_the_quickstart_as_documented(stack: Stack, shell: Shell, tmp_path: Path) -> None:
    port, receiver = free_port(), tmp_path / "receiver"
    commands = [
        command.replace("$RECEIVER", str(receiver)).replace("9000", str(port))
        for command in blocks("docs/quickstart.md", "sh")
    ]
    assert "make run" in commands.pop(0)
    (tmp_path / ".local").symlink_to(stack.data_dir)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    python_at(tmp_path / ".venv/bin/python")

    def type_next(part: str) -> str:
        command = commands.pop(0)
        assert part in command, f"the next command is {command}"
        return shell.run(command)

    def answer(part: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(type_next(part))
        return answer

    type_next("ready.json")
    assert answer("quickstart-1")["messages"][0]["id"].startswith("wamid.")
    assert "pip install" in commands.pop(0)
    python_at(receiver / "bin/python")
    type_next("sed ")
    type_next("endpoint.json")
    printed = tmp_path / "printed"
    commands[0] = commands[0].replace(" &\n", f" > {printed} &\n")
    type_next("receiver.py")
    until(lambda: listens(port), "the receiver")
    assert answer("/verify")["status"] == "active"
    assert answer("on its way")["messages"][0]["id"].startswith("wamid.")
    answer("/sim/inbound")
    expected = Counter({"message.outbound": 1, "message.status": 3, "message.inbound": 1})

    def came() -> bool:
        """Whether the events have arrived. The receiver's threads may mix their lines, and statuses of other tests may
        arrive too.
        """
        return Counter(re.findall("|".join(expected), printed.read_text())) >= expected

    try:
        until(came, "the events", seconds=60)
    except AssertionError:
        pytest.fail(f"Of the events came: {printed.read_text()}")
    assert '"deleted":true' in type_next("-X DELETE").replace(" ", "")
    assert not listens(port)
    assert commands == []
