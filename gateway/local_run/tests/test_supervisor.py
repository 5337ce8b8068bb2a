"""Rejections of `make run` and `make reset`: one line has the reason, and nothing was started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import environment, settings
from gateway.local_run.supervisor import locked, set_environment


def supervisor(command: str, data_dir: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.local_run.supervisor", command],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATA_DIR": str(data_dir), "PORT": "1", "SIMULATOR_PORT": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("variable", ["PORT", "SIMULATOR_PORT"])
def test_a_busy_port_is_named_before_anything_starts(tmp_path: Path, variable: str) -> None:
    with socket.socket() as busy, socket.socket() as free:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        free.bind(("127.0.0.1", 0))
        ports = dict.fromkeys(("PORT", "SIMULATOR_PORT"), str(free.getsockname()[1]))
        port = busy.getsockname()[1]
        free.close()
        run = supervisor("run", tmp_path, **ports | {variable: str(port)})
    assert run.returncode == 1
    assert run.stdout.count("\n") == 1
    assert f"Port {port} cannot be used" in run.stdout
    assert f"{variable}={port + 1} make run" in run.stdout
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("command", ["run", "reset"])
def test_a_data_directory_in_use_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "kept").touch()
    with locked(tmp_path):
        run = supervisor(command, tmp_path)
    assert run.returncode == 1
    assert run.stdout.count("\n") == 1
    assert f"in use by a run (process {os.getpid()})" in run.stdout
    assert (tmp_path / "kept").exists()


def test_reset_deletes_what_a_run_made(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with locked(data_dir):
        (data_dir / "postgres").mkdir()
    assert supervisor("reset", data_dir).returncode == 0
    assert not data_dir.exists()
    assert supervisor("reset", data_dir).returncode == 0


def test_reset_spares_a_directory_that_no_run_made(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    assert supervisor("reset", tmp_path).returncode == 1
    assert (tmp_path / "thesis.txt").exists()


def test_logs_without_a_run_says_who_writes_them(tmp_path: Path) -> None:
    run = supervisor("logs", tmp_path)
    assert run.returncode == 1
    assert "`make run` writes them" in run.stdout


@pytest.mark.parametrize(
    ("app_id", "simulated"), [(environment.SIMULATOR_APP_ID, True), ("123456789012345", False)]
)
def test_live_is_simulated_until_an_app_at_meta_is_set(
    monkeypatch: pytest.MonkeyPatch, app_id: str, simulated: bool
) -> None:
    for name in ("META_GRAPH_URL", "SERVICE_SHA"):
        monkeypatch.setattr(settings, name, "as configured")
    monkeypatch.setattr(settings, "META_APP_ID", app_id)
    monkeypatch.setattr(os, "environ", {})
    set_environment()
    assert (settings.META_GRAPH_URL == settings.SANDBOX_GRAPH_URL) is simulated
    assert ("META_GRAPH_URL" in os.environ) is simulated


def test_an_address_of_the_live_upstream_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("META_GRAPH_URL", "SERVICE_SHA"):
        monkeypatch.setattr(settings, name, "as configured")
    monkeypatch.setattr(settings, "META_APP_ID", environment.SIMULATOR_APP_ID)
    monkeypatch.setattr(os, "environ", {"META_GRAPH_URL": "as configured"})
    set_environment()
    assert os.environ["META_GRAPH_URL"] == settings.META_GRAPH_URL == "as configured"
