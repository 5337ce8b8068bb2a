"""Structured logs: one JSON object per line on standard error, with request id and tenant id if known.

Never log content: pass no secret, token, message text or phone number to a logger. `redact` is only the last defence.
"""

import logging
import re
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import orjson
import psycopg
import structlog
from django.conf import settings
from structlog.typing import ExcInfo

from gateway.clock import now

_SECRET = re.compile(r"(wb_(?:live|test)_|wb[cor]_|whsec_|EAA(?=\w{40}))[A-Za-z0-9+/=_\-.]{6,}")
"""The service's credentials and Meta's access tokens. `EAA` may also be inside an id, which is shorter than a token."""


_NOISY = (
    "django.server",
    "urllib3",
    "aiohttp.access",
    "celery.beat",
    "celery.app.trace",
    "celery.worker.strategy",
)
"""Loggers whose lines below the level warning repeat the service's own lines."""


def type_alone(value: object) -> str:
    """The `__repr__` of values that contain a credential or a text. Errors, traces and logs must not show these."""
    return f"<{type(value).__name__}>"


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove credentials from every text value, in case one reaches a logger."""
    for key, value in event.items():
        if isinstance(value, str) and _SECRET.search(value):
            event[key] = _SECRET.sub(r"\1…", value)
    return event


def _traceback(exc_info: ExcInfo) -> str:
    """The text of a traceback. A message of the database, which can contain values of rows, is replaced by the name of
    the violated constraint.
    """
    text = "".join(traceback.format_exception(*exc_info)).rstrip("\n")
    chain: list[BaseException] = []
    error: BaseException | None = exc_info[1]
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    for each in chain:
        # Django's error has the same message. Without a SQLSTATE no statement failed, but the connection.
        if isinstance(each, psycopg.Error) and each.sqlstate and str(each):
            text = text.replace(str(each), each.diag.constraint_name or "…")
    return text


_stream = sys.stderr


def configure(config: Mapping[str, Any]) -> None:
    """Django's LOGGING_CONFIG: send the standard library's logging and structlog through one JSON pipeline."""
    global _stream
    _stream = sys.stderr
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_traceback),
        redact,
    ]
    handler = logging.StreamHandler(_stream)
    # Changed in place, because loggers in use refer to this list.
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
    # urllib3's warning about a broken header contains the whole address, which may be that of a customer's file.
    logging.getLogger("urllib3.connection").setLevel(logging.ERROR)
    # Errors of tenants' brokers are recorded with the attempts. Their users and hosts must not appear in this log.
    for client in ("aiokafka", "aiormq"):
        logging.getLogger(client).setLevel(logging.CRITICAL)
    logging.getLogger("django.request").setLevel(logging.CRITICAL)


_REQUESTS = logging.getLogger("gateway.request")


def log_answer(**facts: Any) -> None:
    """Write the line of an answered request, in the same form as all other lines.

    Every request has such a line, so these lines bypass the processors, which take ten times as long. They need no
    redaction, because their values never come from a caller. An error while writing does not fail the call.
    """
    if not _REQUESTS.isEnabledFor(logging.INFO):
        return
    line = {**facts, "event": "request", "level": "info", "logger": _REQUESTS.name, "timestamp": now()}
    with suppress(OSError, ValueError):
        _stream.write(orjson.dumps(line, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE).decode())


def _as_json(event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event, default=str).decode()


# --- Error reports to Sentry, off without SENTRY_DSN. They contain nothing personal: no bodies, headers, local
# variables or users.


def start() -> None:
    """Start reporting if a DSN is set. Call it once per process."""
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
    """Reduce an error report to the stack, the route and the request id. Credentials, and messages of the database, are
    removed from texts.
    """
    # Paths can contain the secret of a link or a customer's id. Without a route, the path takes its place.
    request = event.get("request")
    if isinstance(request, dict):
        event["request"] = {name: request[name] for name in ("method",) if name in request}
    if (event.get("transaction_info") or {}).get("source") == "url":
        event.pop("transaction", None)
    for name in ("user", "extra"):
        event.pop(name, None)
    for value in (event.get("exception") or {}).get("values") or []:
        if isinstance(value, dict):
            redact(None, "", value)
            if str(value.get("module")).startswith(("django.db", "psycopg")):
                value["value"] = "…"
    return event
