"""Fixtures: a Valkey that a test can stop, and the end of the callers of a failed test."""

from collections.abc import Iterator

import pytest

from tests.faults.callers import Callers
from tests.faults.service import Valkey, same_directory


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A Valkey for the processes of this test."""
    server = Valkey(same_directory("valkey"))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _no_caller_left() -> Iterator[None]:
    yield
    Callers.end_all()
