"""What all tests of the request log share."""

import pytest

from gateway.request_log.tests.listening import listening

write = pytest.fixture(listening)
