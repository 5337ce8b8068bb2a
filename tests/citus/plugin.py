"""A pytest plugin that runs the tests on a Citus cluster: `-p tests.citus.plugin --reuse-db`."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gateway import embedded_addresses
from tests.citus.cluster import ROOT, Cluster


def _distributed(directory: Path) -> Cluster:
    """Start a coordinator and two workers, and create the service's tables on them."""
    cluster = Cluster(directory, workers=2)
    atexit.register(cluster.close)
    os.environ |= {"DATABASE_URL": cluster.url, "DATABASE_IS_DISTRIBUTED": "true"}
    for command in ("migrate", "distribute", "distribute"):
        subprocess.run(
            [sys.executable, "-W", "ignore", "manage.py", command, "--verbosity=0"],
            cwd=ROOT,
            env=os.environ | {"DATA_DIR": str(directory / "data")},
            check=True,
        )
    return cluster


_directory = Path(tempfile.mkdtemp(prefix="gateway-citus-"))
atexit.register(shutil.rmtree, _directory, ignore_errors=True)
running = _distributed(_directory)
# Importing the project has set this variable. conftest.py rejects it, and sets it itself.
os.environ.pop("DJANGO_SETTINGS_MODULE", None)


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Make the tests use the database itself, because Citus cannot create a copy of it."""
    from django.db import connections

    connections["default"].settings_dict["TEST"]["NAME"] = embedded_addresses.DATABASE
