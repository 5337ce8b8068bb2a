"""The Go and Java calls of the guides and of the reference compile, and the Go receiver accepts only signed bodies.

`make clients` runs these tests. They need Go and Java.
"""

import os
import subprocess
import time
from pathlib import Path

import pytest
import requests

from tests.documentation.samples import made
from tests.documentation.test_webhook_samples import PING, SECRET, wait_until_it_listens
from tests.free_ports import free_port
from tests.pages import blocks
from webhooks.requests import signed_request
from webhooks.requests.signed_request import key_of


def run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_calls_in_go_compile(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module calls\n\ngo 1.21\n")
    calls = made("go")
    assert len(calls) > 130
    for name, code in calls.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.go").write_text(code)
    run("go", "vet", "./...", cwd=tmp_path)
    assert subprocess.check_output(["gofmt", "-l", "."], cwd=tmp_path, text=True) == ""


def test_the_calls_in_java_compile(tmp_path: Path) -> None:
    calls = made("java")
    assert len(calls) > 130
    for name, code in calls.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "Call.java").write_text(f"package {name};\n{code}")
    run("javac", "-d", "out", *(f"{name}/Call.java" for name in calls), cwd=tmp_path)


@pytest.mark.parametrize(
    ("secret", "key", "status"), [(SECRET, key_of(SECRET), 200), ("", b"", 401), ("whsec_", b"", 401)]
)
def test_the_receiver_in_go_takes_nothing_without_a_secret(
    secret: str, key: bytes, status: int, tmp_path: Path
) -> None:
    (tmp_path / "go.mod").write_text("module receiver\n\ngo 1.21\n")
    [code] = blocks("docs/webhooks.md", "go")
    (tmp_path / "main.go").write_text(code)
    run("go", "build", "-o", "receiver", ".", cwd=tmp_path)
    port = free_port()
    process = subprocess.Popen(
        ["./receiver"], cwd=tmp_path, env={**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    )
    try:
        wait_until_it_listens(port, process)
        headers = signed_request.headers(
            keys=(key,),
            message_id="evt_1",
            timestamp=int(time.time()),
            body=PING,
            event_type="webhook.verify",
        )
        answer = requests.post(f"http://127.0.0.1:{port}/", data=PING, headers=headers, timeout=10)
        assert answer.status_code == status
    finally:
        process.kill()
        process.wait(10)
