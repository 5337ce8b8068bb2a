"""Servers of a test's own, which it can take away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.service import Valkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey for the processes of this test."""
    server = Valkey(tmp_path)
    yield server
    server.close()
