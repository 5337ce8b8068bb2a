"""Fixtures of all tests of the request log."""

import pytest

from gateway.request_log.tests.listening import listening

write = pytest.fixture(listening)
