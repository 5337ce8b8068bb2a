"""The command line, installed from its wheel, against the running service: the whole guide, up to its bot."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.e2e.conftest import Stack, until
from tests.e2e.sdks.packages import sends_to
from tests.free_ports import free_port
from tests.pages import blocks

pytestmark = pytest.mark.e2e

PAGE = "docs/cli.md"
CUSTOMER = "919812345061"


class Shell:
    """A terminal of a reader of the guide."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.directory = directory
        self.program = str(home / "bin/whabuzz")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WHABUZZ_")},
            "PYTHONPATH": str(home),
            "WHABUZZ_CONFIG_DIR": str(directory / "profiles"),
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, *arguments: str) -> str:
        """Run `whabuzz`. Returns the output."""
        done = subprocess.run(
            [sys.executable, self.program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, *command: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Run a program. Yields the process and the file with its output."""
        printed = self.directory / secrets.token_hex(4)
        with printed.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.directory,
                env={**self.environment, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                yield process, printed
            finally:
                process.kill()
                process.wait(10)


def confirm(stack: Stack, page: str) -> None:
    """Confirm the log-in as the owner: log in to the console, read the page, press the button."""
    browser = requests.Session()
    base = page.partition("/console/")[0]

    def token(text: str) -> str:
        [first, *_] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', text)
        return str(first)

    form = browser.get(f"{base}/login", timeout=20)
    credentials = {"login": stack.ready["owner_email"], "password": stack.ready["owner_password"]}
    browser.post(f"{base}/login", {**credentials, "csrfmiddlewaretoken": token(form.text)}, timeout=20)
    shown = browser.get(page, timeout=20)
    code = page.partition("code=")[2]
    assert code in shown.text
    answer = {"code": code, "environment": "test", "csrfmiddlewaretoken": token(shown.text)}
    assert "Confirmed" in browser.post(f"{base}/console/device", answer, timeout=20).text


def test_the_guide_leads_from_nothing_to_a_bot_that_answers(
    stack: Stack, python_home: Path, tmp_path: Path
) -> None:
    shell = Shell(python_home, tmp_path)
    login = ("login", "--no-browser", "--no-keyring", "--base-url", stack.ready["base_url"])
    with shell.running(shell.program, *login) as (process, printed):
        page = until(lambda: re.search(r"http\S+/console/device\?code=\S+", printed.read_text()), "the page")
        confirm(stack, page[0])
        assert process.wait(30) == 0, printed.read_text()
    assert "Demo Shop (test)" in shell.run("whoami")

    (tmp_path / "bot.py").write_text(blocks(PAGE, "python")[0])
    shell.environment["WHABUZZ_WEBHOOK_SECRET"] = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    port = str(free_port())
    listen = ("listen", "--forward-to", f"localhost:{port}", "--type", "message.inbound")
    with (
        shell.running(shell.program, *listen) as (_, listened),
        shell.running("bot.py", PORT=port),
    ):
        until(lambda: "Listening to test events" in listened.read_text(), "the listener")
        shell.run("trigger", "inbound", "Do you have it?", "--from", CUSTOMER)
        until(lambda: "→ 200" in listened.read_text(), "the bot's answer to the webhook")
        until(lambda: sends_to(stack, CUSTOMER), "the bot's message")
        assert shell.run("messages", "list", "--to", CUSTOMER).count("→") == 1
    assert "Do you have it?" in listened.read_text()
    conversation = shell.run("messages", "list", "--to", CUSTOMER, "--json")
    assert conversation.count(f'"wa_id": "{CUSTOMER}"') == 2
    shell.run("logout")
