"""The whole web process over real HTTP, on the tests' own database."""

import pytest

from tests.front import running
from web.tests.client import FrontClient


@pytest.fixture
def front_address(django_db_setup: None) -> tuple[str, int]:
    """Host and port of the running listener."""
    return running.start()


@pytest.fixture
def front(front_address: tuple[str, int]) -> FrontClient:
    return FrontClient(front_address)
