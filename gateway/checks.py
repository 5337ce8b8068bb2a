"""System checks of settings that would be wrong in production, and of the servers.

`manage.py check --deploy` checks the settings. Missing and published secrets are rejected earlier, when the settings
load (`gateway/environment.py`). `manage.py migrate` and `manage.py check --database default` check the servers: the
version of Postgres, and whether Valkey answers, has the right version and never evicts. Each web process and each
worker repeats these checks at its start and logs the findings. The process starts despite findings, because a server
may soon be fixed, and the service works without Valkey.

Ids are stable: `docs/operations.md` lists `gateway.E001` and so on.
"""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from cryptography.fernet import Fernet
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import Error as DatabaseError
from django.db import connections

from gateway.outbound.client import EgressProxy
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

EXAMPLE_SELLER = {
    "BILLING_SELLER_NAME": "Example Messaging Private Limited",
    "BILLING_SELLER_ADDRESS": "1 Example Road, Mumbai 400001",
}
"""The default names of the operator. The default texts of /terms and /privacy, and invoices, contain them."""


@register(Tags.security)
def check_values(**_: Any) -> list[CheckMessage]:
    """Check for values that are wrong in every environment."""
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
    if settings.TEXTS_DIR and not _own_texts():
        problems.append(Error("TEXTS_DIR contains neither terms.md nor privacy.md.", id="gateway.E007"))
    return problems


def _own_texts() -> list[Path]:
    folder = Path(settings.TEXTS_DIR)
    return [
        path
        for name in ("terms.md", "privacy.md")
        if settings.TEXTS_DIR and (path := folder / name).is_file()
    ]


def has_example_seller() -> bool:
    """Whether the operator's name or address is still the default."""
    return any(getattr(settings, name) == example for name, example in EXAMPLE_SELLER.items())


def _is_support_address(address: str) -> bool:
    name, _, host = address.rpartition("@")
    unread = name.lower().replace("-", "").replace("_", "") in {"noreply", "donotreply"}
    return bool(name) and "." in host and not unread


@register(Tags.security, deploy=True)
def check_production(**_: Any) -> list[CheckMessage]:
    """Check for development defaults that must not be used in production."""
    if not settings.PRODUCTION:
        return [Error("ENVIRONMENT is not production: development defaults are in force.", id="gateway.E010")]
    findings = {
        "gateway.E016": (
            settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS,
            "WEBHOOK_ALLOW_PRIVATE_NETWORKS lets tenants reach addresses of the private network.",
        ),
        "gateway.E017": (settings.WEBHOOK_ALLOW_HTTP, "WEBHOOK_ALLOW_HTTP sends events unencrypted."),
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
            "SUPPORT_EMAIL is not an address that can receive replies to mails.",
        ),
        "gateway.E023": (
            has_example_seller() and len(_own_texts()) < 2,
            "BILLING_SELLER_NAME or BILLING_SELLER_ADDRESS is an example: /terms and /privacy name it.",
        ),
        "gateway.E020": (
            not settings.META_GRAPH_URL.startswith("https://"),
            "META_GRAPH_URL must begin with https://.",
        ),
    }
    return [Error(text, id=code) for code, (wrong, text) in findings.items() if wrong]


log = structlog.get_logger(__name__)

OLDEST_POSTGRES = 15
OLDEST_VALKEY = (7, 0)
"""The oldest supported version of the INFO field `redis_version`. Valkey 7.2 and 8 report 7.2.4 there."""


@register(Tags.database)
def check_servers(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check the servers that this environment names."""
    if not databases:
        return []
    return [*_of_postgres(databases), *_of_valkey()]


def _of_postgres(aliases: Iterable[str]) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for alias in aliases:
        with connections[alias].cursor() as cursor:
            cursor.execute("SHOW server_version_num")
            version = int(cursor.fetchone()[0]) // 10_000
        if version < OLDEST_POSTGRES:
            text = f"Postgres {version} is too old: {OLDEST_POSTGRES} or newer is needed."
            found.append(Error(text, id="gateway.E030"))
    return found


def _of_valkey() -> list[CheckMessage]:
    try:
        facts = valkey().info()
    except VALKEY_UNAVAILABLE:
        text = "Valkey does not answer at REDIS_URL: nothing is lost, but everything waits longer."
        return [checks.Warning(text, id="gateway.W031")]
    found: list[CheckMessage] = []
    version = tuple(int(part) for part in str(facts["redis_version"]).split(".")[:2])
    if version < OLDEST_VALKEY:
        text = f"Redis {facts['redis_version']} is too old: Valkey 7.2 or Redis 7 is needed."
        found.append(Error(text, id="gateway.E032"))
    policy = facts["maxmemory_policy"]
    if policy != "noeviction":
        text = f"Valkey's maxmemory-policy is {policy}: tasks and limits would vanish. Set noeviction."
        found.append(Error(text, id="gateway.E033"))
    return found


def report_at_start() -> None:
    """Check and log the findings in a separate thread, so that a hanging server does not delay the start."""
    threading.Thread(target=_report, name="server-checks", daemon=True).start()


def _report() -> None:
    try:
        for finding in check_servers(databases=list(settings.DATABASES)):
            log.error("server_unfit", id=finding.id, finding=finding.msg)
    except DatabaseError as error:
        log.warning("server_checks_missed", error=type(error).__name__)
    finally:
        connections.close_all()
