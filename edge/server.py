"""The HTTP server of the edge: uvicorn with httptools and uvloop, and the bounds of `edge/protocol.py`."""

from typing import Any

import uvicorn

from edge.protocol import BoundedProtocol

KEEP_ALIVE_SECONDS = 75
"""Longer than a proxy keeps an idle connection, so it is the proxy that closes it."""
GRACEFUL_SECONDS = 20


def config(application: Any, *, host: str, port: int) -> uvicorn.Config:
    """How an ASGI application of the edge is served, in production and in tests."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
