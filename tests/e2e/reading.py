"""Runs the commands of a documentation page in a shell against the running service."""

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
        """Run the next command, which must contain `part`. Returns the output."""
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
        """Run the next command. Returns the JSON in the output."""
        answer: dict[str, Any] = json.loads(self.type(part))
        return answer

    def run(self, part: str) -> dict[str, Any]:
        """Run the next command. Its JSON must not be an error."""
        answer = self.answer(part)
        assert "error" not in answer, answer
        return answer
