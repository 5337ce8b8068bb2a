"""The calls of the guides and of the reference in Go and Java compile (`make clients`: needs Go and Java)."""

import subprocess
from pathlib import Path

from tests.documentation.samples import made


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
