"""Error reports to Sentry, off without SENTRY_DSN. Nothing personal leaves: no bodies, headers, locals or users."""

from typing import Any

from django.conf import settings

from gateway.monitoring.logs import redact

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
    """What of a report may leave: the stack, the route and the request id; credentials are cut out of texts."""
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
