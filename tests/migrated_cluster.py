"""A migrated Postgres cluster, which is created once a day and then copied.

A copy takes a tenth of the CPU that creating and migrating a cluster takes. The cluster is stored in the virtual
environment under a digest of its sources, so it is never out of date. On a copy, `migrate` runs only its post-migrate
steps. Run as a program, this module creates the cluster.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup

ROOT = Path(__file__).resolve().parents[1]
_KEPT = Path(sys.prefix) / "migrated-clusters"
_DAY_SECONDS = 24 * 60 * 60
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)(?: import (\w+))?", re.MULTILINE)


def copy_to(data_dir: Path) -> None:
    """Copy the cluster, with its migrated database `gateway`, to a data directory."""
    _copy(_made(), data_dir / "postgres")


def _made() -> Path:
    """Return the migrated cluster. If it is missing, one process creates it while the others wait."""
    _KEPT.mkdir(exist_ok=True)
    cluster = _KEPT / digest(datetime.now(UTC).date().isoformat())
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cluster.exists():
            _delete_old()
            _make(cluster)
    return cluster


def digest(day: str) -> str:
    """Return the cluster's name: a digest of the migrations, their imports, the libraries and the day.

    The day is included because the partitions of a database begin on the day of its migration.
    """
    digest = hashlib.sha256(day.encode())
    for path in sorted({*_sources(), *ROOT.glob("requirements*.txt")}):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    for migration in ROOT.glob("*/migrations/*.py"):
        yield migration
        for module, name in _IMPORT.findall(migration.read_text()):
            for dotted in (module, f"{module}.{name}"):
                with contextlib.suppress(ValueError):
                    path = ROOT / f"{dotted.replace('.', '/')}.py"
                    if path.exists():
                        yield path


def _delete_old() -> None:
    for cluster in _KEPT.iterdir():
        if cluster.is_dir() and cluster.stat().st_mtime < time.time() - _DAY_SECONDS:
            shutil.rmtree(cluster)


def _make(cluster: Path) -> None:
    data_dir = Path(tempfile.mkdtemp(prefix="gateway-migrated-"))
    group = ProcessGroup()
    try:
        postgres = embedded_servers.start_postgres(data_dir, process_group=group.id, durable=False)
        valkey = embedded_servers.start_valkey(data_dir, process_group=group.id)
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity=0"],
            cwd=ROOT,
            env=os.environ
            | {
                "DATA_DIR": str(data_dir),
                "DATABASE_URL": embedded_addresses.database_url(data_dir),
                "REDIS_URL": embedded_addresses.valkey_url(data_dir),
            },
            check=True,
        )
        embedded_servers.stop_valkey(valkey)
        embedded_servers.stop_postgres(postgres)
        _copy(data_dir / "postgres", cluster)
    finally:
        group.close()
        shutil.rmtree(data_dir, ignore_errors=True)
        shutil.rmtree(embedded_addresses.socket_dir(data_dir), ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a stopped cluster, and keep the owner of its files. The target never exists as a partial copy."""
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(unfinished)], check=True)
    unfinished.rename(target)


if __name__ == "__main__":
    _made()
