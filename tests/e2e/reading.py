"""A reader who runs the commands of a documentation page in a shell, with the running service."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Stack
from tests.pages import blocks


class Reader:
    """Runs the commands of a page one after another."""

    def __init__(self, page: str, stack: Stack, directory: Path) -> None:
        self.commands = blocks(page, "sh")
        self.directory = directory
        self.environment = {
            "PATH": os.environ["PATH"],
            "BASE_URL": stack.ready["base_url"],
            "API_KEY": stack.ready["api_key"],
            "FROM": stack.ready["phone_number_id"],
        }

    def type(self, part: str) -> str:
        """The output of the next command, which must contain `part`."""
        command = self.commands.pop(0)
        assert part in command, f"the next command is {command}"
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout

    def answer(self, part: str) -> dict[str, Any]:
        """The JSON output of the next command."""
        answer: dict[str, Any] = json.loads(self.type(part))
        return answer

    def run(self, part: str) -> dict[str, Any]:
        """The output of the next command, which must succeed."""
        answer = self.answer(part)
        assert "error" not in answer, answer
        return answer
