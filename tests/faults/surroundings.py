"""`python -m tests.faults.surroundings gateway …`: the service with a clock and a name server that a test controls.

SURROUNDINGS is a folder. The file `shift` holds the clock's offset in seconds, `port` the port of the name server.
"""

import os
import runpy
import socket
import sys
import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiodns

_FOLDER = Path(os.environ.get("SURROUNDINGS", ""))
QUERY = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"


def _shift() -> float:
    return float((_FOLDER / "shift").read_text())


def _move_clock() -> None:
    from gateway import clock

    real_time, real_now = time.time, clock.now

    def now() -> datetime:
        return real_now() + timedelta(seconds=_shift())

    for module in list(sys.modules.values()):
        if getattr(module, "now", None) is real_now:
            module.now = now  # type: ignore[attr-defined]
    time.time = lambda: real_time() + _shift()


def _ask_the_name_server() -> None:
    from gateway.outbound import addresses

    port = int((_FOLDER / "port").read_text())
    addresses.DNSResolver = partial(  # type: ignore[misc, assignment]
        aiodns.DNSResolver, nameservers=["127.0.0.1"], udp_port=port, tcp_port=port
    )
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if not str(host).endswith(".example"):
            return real(host, *arguments, **options)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(5)
            asking.sendto(QUERY, ("127.0.0.1", port))
            try:
                asking.recv(512)
            except TimeoutError:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution") from None
        return real("127.0.0.1", *arguments, **options)

    socket.getaddrinfo = getaddrinfo


if __name__ == "__main__":
    _move_clock()
    _ask_the_name_server()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
