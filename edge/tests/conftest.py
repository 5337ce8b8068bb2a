"""The edge as a server in a thread of the test's process: the tests' own database, real HTTP."""

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from edge import server
from edge.application import application
from tests.fixtures import wait_until


@pytest.fixture(scope="session")
def edge_address(django_db_setup: None) -> Iterator[tuple[str, int]]:
    """Host and port of a running edge; it ends before its database does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        host, port = listener.getsockname()
        running = server.Server(server.config(application, host=host, port=port))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        wait_until(lambda: running.started, "the edge does not start")
        yield host, port
        running.handle_exit(signal.SIGTERM, None)
        thread.join(10)
        assert not thread.is_alive(), "a signal ends the edge"
