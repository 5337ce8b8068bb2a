"""System checks: `manage.py check --deploy` refuses settings that would be wrong in production.

Ids are stable: `gateway.E001` and so on stand in `docs/operations.md`.
"""

from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from gateway.outbound.egress_proxy import EgressProxy


@register(Tags.security)
def check_values(**_: Any) -> list[CheckMessage]:
    """Values that are wrong anywhere."""
    problems: list[CheckMessage] = []
    for index, key in enumerate(settings.ENCRYPTION_KEYS):
        try:
            Fernet(key)
        except ValueError:
            problems.append(Error(f"ENCRYPTION_KEYS[{index}] is not a Fernet key.", id="gateway.E001"))
    if not settings.ENCRYPTION_KEYS:
        problems.append(Error("ENCRYPTION_KEYS is empty.", id="gateway.E001"))
    if settings.EMAIL_MODE not in {"smtp", "console", "log"}:
        problems.append(Error("EMAIL_MODE must be smtp, console or log.", id="gateway.E002"))
    if any(step <= 0 for step in settings.WEBHOOK_RETRY_SCHEDULE) or not settings.WEBHOOK_RETRY_SCHEDULE:
        problems.append(
            Error("WEBHOOK_RETRY_SCHEDULE must hold positive numbers of seconds.", id="gateway.E003")
        )
    if settings.WEBHOOK_PROXY_URL:
        try:
            EgressProxy.from_url(settings.WEBHOOK_PROXY_URL)
        except ValueError:
            problems.append(
                Error("WEBHOOK_PROXY_URL must be http://[user:password@]host:port.", id="gateway.E005")
            )
    collector = settings.OTEL_EXPORTER_OTLP_ENDPOINT
    if collector and not (collector.startswith(("http://", "https://")) and urlsplit(collector).hostname):
        problems.append(
            Error("OTEL_EXPORTER_OTLP_ENDPOINT must be http://host:port or https://….", id="gateway.E006")
        )
    if settings.ENVIRONMENT not in {"development", "production"}:
        problems.append(Error("ENVIRONMENT must be development or production.", id="gateway.E004"))
    return problems


def _is_support_address(address: str) -> bool:
    name, _, host = address.rpartition("@")
    unread = name.lower().replace("-", "").replace("_", "") in {"noreply", "donotreply"}
    return bool(name) and "." in host and not unread


@register(Tags.security, deploy=True)
def check_production(**_: Any) -> list[CheckMessage]:
    """Development defaults that must not reach production."""
    if not settings.PRODUCTION:
        return [Error("ENVIRONMENT is not production: development defaults are in force.", id="gateway.E010")]
    sandboxed = bool(settings.SANDBOX_GRAPH_URL)
    findings = {
        "gateway.E011": (
            settings.SECRET_KEY == settings.DEVELOPMENT_SECRET_KEY,
            "SECRET_KEY is the development value.",
        ),
        "gateway.E012": (
            settings.DEVELOPMENT_ENCRYPTION_KEY in settings.ENCRYPTION_KEYS,
            "ENCRYPTION_KEYS holds the development key.",
        ),
        "gateway.E013": (
            settings.SIMULATOR_APP_SECRET in {settings.META_APP_SECRET, *settings.META_APP_SECRET_FALLBACKS},
            "META_APP_SECRET or a fallback is the simulator's: anyone could forge notifications.",
        ),
        "gateway.E014": (
            sandboxed and settings.SANDBOX_APP_SECRET == settings.SIMULATOR_APP_SECRET,
            "SANDBOX_APP_SECRET is the published default: change it, or set SANDBOX_GRAPH_URL empty.",
        ),
        "gateway.E023": (
            sandboxed and not settings.SANDBOX_CONTROL_TOKEN,
            "SANDBOX_CONTROL_TOKEN is empty: whoever reaches the simulator can play customers of any test world.",
        ),
        "gateway.E015": (
            settings.META_WEBHOOK_VERIFY_TOKEN == "sim-verify-token",
            "META_WEBHOOK_VERIFY_TOKEN is the development value.",
        ),
        "gateway.E016": (
            settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS,
            "WEBHOOK_ALLOW_PRIVATE_NETWORKS lets customers reach the inside of the network.",
        ),
        "gateway.E017": (settings.WEBHOOK_ALLOW_HTTP, "WEBHOOK_ALLOW_HTTP sends events in the clear."),
        "gateway.E018": (
            settings.EMAIL_MODE != "smtp",
            "EMAIL_MODE is not smtp: nobody would receive a mail.",
        ),
        "gateway.E019": (
            not (settings.BASE_URL.startswith("https://") and settings.APP_URL.startswith("https://")),
            "BASE_URL and APP_URL must begin with https://.",
        ),
        "gateway.E022": (
            not _is_support_address(settings.SUPPORT_EMAIL),
            "SUPPORT_EMAIL is no address that answers to mails can reach.",
        ),
        "gateway.E020": (
            not settings.META_GRAPH_URL.startswith("https://"),
            "META_GRAPH_URL must begin with https://.",
        ),
    }
    return [Error(text, id=code) for code, (wrong, text) in findings.items() if wrong]
