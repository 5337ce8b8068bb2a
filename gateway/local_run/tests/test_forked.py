"""Forked processes: each has its own files, name, signals and random numbers, and ends as a new one would."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from gateway.local_run.processes import log_path

OWNER = """
import json, os, signal, sys, time
from pathlib import Path
from gateway.local_run import forked, processes
from gateway.local_run.process_group import ProcessGroup
data_dir = Path(sys.argv[1])
group = ProcessGroup(grace_seconds=1)
secret = os.open("/etc/hostname", os.O_RDONLY)
signal.signal(signal.SIGTERM, lambda *_: Path(data_dir, "handled").touch())
forked.preload()
children = {
    name: forked.start(
        name, [sys.executable, "-m", "gateway.local_run.tests.forked_child", name],
        data_dir=data_dir, process_group=group.id, environment={"EXTRA": name},
    )
    for name in ("exit", "crash", "wait", "return")
}
while "the end" not in processes.log_path(data_dir, "return").read_text():
    time.sleep(0.01)
while "arguments" not in processes.log_path(data_dir, "wait").read_text():
    time.sleep(0.01)
processes.stop(children["wait"], seconds=10)
codes = {name: child.wait(10) for name, child in children.items()}
print(json.dumps({"group": group.id, "codes": codes}))
group.close()
"""


def test_a_forked_process_is_as_one_that_was_started_anew(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OWNER, str(tmp_path)],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "gateway.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    ended = json.loads(run.stdout)
    assert ended["codes"] == {"exit": 7, "crash": 1, "wait": -signal.SIGTERM, "return": 0}
    assert not (tmp_path / "handled").exists(), "the child has none of its parent's handlers"
    said: dict[str, dict[str, Any]] = {}
    for name in ended["codes"]:
        first, *rest = log_path(tmp_path, name).read_text().splitlines()
        said[name] = json.loads(first)
        assert ("the end" in rest) == (name != "wait")
    assert "RuntimeError: crashed in the child" in log_path(tmp_path, "crash").read_text()
    for name, its in said.items():
        assert its["arguments"] == [name]
        assert its["extra"] == name
        assert its["name"] == name
        assert its["group"] == ended["group"]
        assert its["files"] == [0, 1, 2]
        assert its["input"] == ""
        assert its["has_django"], "what was imported before the fork is there"
    assert len({its["random"] for its in said.values()}) == len(said)
