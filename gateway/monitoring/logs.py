"""Structured logs: one JSON object a line on standard error, with request id and tenant id where there is one.

Never content: no secret, token, message text or phone number is passed to a logger; `redact` is the last net.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import orjson
import structlog
from django.conf import settings

from gateway.clock import now

_SECRET = re.compile(r"(wb_(?:live|test)_|wb[cor]_|whsec_|EAA)[A-Za-z0-9+/=_\-.]{6,}")


_NOISY = (
    "django.server",
    "urllib3",
    "aiohttp.access",
    "celery.beat",
    "celery.app.trace",
    "celery.worker.strategy",
)
"""Loggers whose lines below a warning say nothing that the service's own lines do not."""


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut credentials out of every text value, should one ever reach a logger."""
    for key, value in event.items():
        if isinstance(value, str) and _SECRET.search(value):
            event[key] = _SECRET.sub(r"\1…", value)
    return event


_stream = sys.stderr


def configure(config: Mapping[str, Any]) -> None:
    """Django's LOGGING_CONFIG: route the standard library's logging and structlog into one JSON pipeline."""
    global _stream
    _stream = sys.stderr
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    handler = logging.StreamHandler(_stream)
    # The list itself stays: loggers that have been used before hold it.
    processors = structlog.get_config()["processors"]
    processors[:] = [
        structlog.stdlib.filter_by_level,
        *shared,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    structlog.configure(
        processors=processors,
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
    # Its warning of a broken head holds the whole address, which may be that of a customer's file.
    logging.getLogger("urllib3.connection").setLevel(logging.ERROR)
    # What befalls tenants' brokers is in the attempts; users and hosts of theirs are no matter of this log.
    for client in ("aiokafka", "aiormq"):
        logging.getLogger(client).setLevel(logging.CRITICAL)
    logging.getLogger("django.request").setLevel(logging.CRITICAL)


_REQUESTS = logging.getLogger("gateway.request")


def log_answer(**facts: Any) -> None:
    """Write the line of an answered request, in the form of all lines.

    It is written for every request, so it does not pass the processors, which take ten times as long. What they do
    for others it does not need: no value is a caller's, so none holds a credential. A stream that fails ends no call.
    """
    if not _REQUESTS.isEnabledFor(logging.INFO):
        return
    line = {**facts, "event": "request", "level": "info", "logger": _REQUESTS.name, "timestamp": now()}
    with suppress(OSError, ValueError):
        _stream.write(orjson.dumps(line, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE).decode())


def _as_json(event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event, default=str).decode()


# --- Error reports to Sentry, off without SENTRY_DSN. Nothing personal leaves: no bodies, headers, locals or
# users.

_REQUEST_MEMBERS = ("method", "url")


def start() -> None:
    """Begin reporting when a DSN is set; called once a process."""
    if not settings.SENTRY_DSN:
        return
    import sentry_sdk

    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        release=settings.SERVICE_SHA,
        environment=settings.ENVIRONMENT,
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        before_send=scrub,
        before_breadcrumb=lambda crumb, hint: None,
    )


def scrub(event: Any, hint: Any) -> Any:
    """Reduce an error report to the stack, the route and the request id; credentials are cut out of texts."""
    request = event.get("request")
    if isinstance(request, dict):
        kept = {name: request[name] for name in _REQUEST_MEMBERS if name in request}
        if "url" in kept:
            kept["url"] = str(kept["url"]).split("?", 1)[0]
        event["request"] = kept
    event.pop("user", None)
    event.pop("extra", None)
    for value in (event.get("exception") or {}).get("values") or []:
        if isinstance(value, dict):
            redact(None, "", value)
    return event
