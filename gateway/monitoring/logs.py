"""Structured logs: one JSON object a line on standard error, with request id and tenant id where there is one.

Never content: no secret, token, message text or phone number is passed to a logger; `redact` is the last net.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import Any, TextIO

import orjson
import structlog

_SECRET = re.compile(r"(wb_(?:live|test)_|wbc_|whsec_|EAA)[A-Za-z0-9+/=_\-.]{6,}")


_NOISY = (
    "django.server",
    "urllib3",
    "aiohttp.access",
    "celery.beat",
    "celery.app.trace",
    "celery.worker.strategy",
)
"""Loggers whose lines below a warning say nothing that the service's own lines do not."""


_ORDINARY = ("debug", "info")
"""Levels of lines that go to the stream alone."""


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut credentials out of every text value, should one ever reach a logger."""
    for key, value in event.items():
        if isinstance(value, str) and _SECRET.search(value):
            event[key] = _SECRET.sub(r"\1…", value)
    return event


def configure(config: Mapping[str, Any]) -> None:
    """Django's LOGGING_CONFIG: route the standard library's logging and structlog into one JSON pipeline."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    handler = logging.StreamHandler(sys.stderr)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            partial(_write_at_once, handler),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processor=lambda _, __, event: _as_json(event), foreign_pre_chain=shared
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(config["level"])
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("django.request").setLevel(logging.CRITICAL)


def _as_json(event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event, default=str).decode()


def _write_at_once(
    handler: "logging.StreamHandler[TextIO]", _: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Write an ordinary line past the standard library's logging, which costs four times as much as all the rest.

    Warnings and errors take that way, because error reports listen there. So does every line while anything else than
    the service's own handler listens.
    """
    if method not in _ORDINARY or logging.root.handlers != [handler]:
        return event
    try:
        handler.stream.write(_as_json(event) + handler.terminator)
    except (OSError, ValueError):
        # A full disk or a closed stream: the handler has a rule for it.
        return event
    raise structlog.DropEvent
