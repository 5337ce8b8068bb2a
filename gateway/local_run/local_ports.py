"""The TCP ports of a run on this machine: free before it starts, answering before it is called ready."""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable

from gateway.local_run.processes import StartError


def check_free(variable: str, port: int) -> None:
    """Raise `StartError` when another program listens on the port that the environment variable names."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise StartError(
                f"Port {port} cannot be used ({error.strerror}): stop the program that has it, or choose another "
                f"with {variable}={port + 1} make run"
            ) from error


def wait_for_answer(port: int, path: str, *, seconds: float, check_alive: Callable[[], None]) -> None:
    """Ask every 50 ms until the answer is 200; `check_alive` raises when waiting is in vain.

    Raises `StartError` after this many seconds.
    """
    deadline = time.monotonic() + seconds
    answer = "no answer"
    while time.monotonic() < deadline:
        check_alive()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            try:
                connection.request("GET", path)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                answer = str(error)
            else:
                if status == 200:
                    return
                answer = f"status {status}"
        time.sleep(0.05)
    raise StartError(
        f"http://127.0.0.1:{port}{path} did not answer 200 within {seconds:.0f} s ({answer}): see `make logs`."
    )
