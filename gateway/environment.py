"""The environment of the settings: values in files, and the values that production requires.

A variable `NAME_FILE` names the file with the value of `NAME`. Development defaults are published with the source, so a
production process rejects them at its start.
"""

from collections.abc import MutableMapping
from typing import NamedTuple

import environ
from django.core.exceptions import ImproperlyConfigured

DEVELOPMENT_SECRET_KEY = "development-only-not-a-secret-0123456789-abcdefghijklmnopqrstuvwxyz"
DEVELOPMENT_ENCRYPTION_KEY = "ZGV2ZWxvcG1lbnQtb25seS1ub3QtYS1zZWNyZXQtISE="
DEVELOPMENT_VERIFY_TOKEN = "sim-verify-token"
SIMULATOR_APP_ID = "900100200300400"
SIMULATOR_APP_SECRET = "sim_app_secret_0123456789abcdef"
SIMULATOR_RAZORPAY_KEY_ID = "rzp_sim_gateway"
SIMULATOR_RAZORPAY_SECRET = "sim_razorpay_secret_0123456789"
_PUBLISHED = frozenset(
    {
        DEVELOPMENT_SECRET_KEY,
        DEVELOPMENT_ENCRYPTION_KEY,
        DEVELOPMENT_VERIFY_TOKEN,
        SIMULATOR_APP_SECRET,
        SIMULATOR_RAZORPAY_KEY_ID,
        SIMULATOR_RAZORPAY_SECRET,
    }
)
_PLACEHOLDER = "replace-me"
"""The prefix of values in documented examples."""


class FilesOrVariables(environ.FileAwareMapping):  # type: ignore[misc] # django-environ has no types
    """The environment, where `NAME_FILE` takes precedence over `NAME`. A line break at a file's end is not part of its
    value.
    """

    def __getitem__(self, key: str) -> str:
        value: str = super().__getitem__(key)
        return value.rstrip("\r\n") if f"{key}_FILE" in self.env else value


class Env(environ.Env):  # type: ignore[misc]
    """The reader of settings. Raises OSError for an unreadable file."""

    ENVIRON: MutableMapping[str, str] = FilesOrVariables()


class _Secret(NamedTuple):
    name: str
    how: str
    """How to create the secret, or where to find it."""
    used_by: str = "service"
    """The part of the service that requires the secret. `nobody` for former secrets, which are always optional."""


_RANDOM = "make one: python -c 'import secrets; print(secrets.token_urlsafe(48))'"
_SANDBOX = f"{_RANDOM}, the same for the simulator; SANDBOX_GRAPH_URL= turns the sandbox off"
_RAZORPAY = "it is on the provider's dashboard"
_SECRETS = (
    _Secret("SECRET_KEY", _RANDOM),
    _Secret("SECRET_KEY_FALLBACKS", "leave it out, or name your former keys", "nobody"),
    _Secret(
        "ENCRYPTION_KEYS",
        "make one: python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'",
    ),
    _Secret("DATABASE_URL", "postgresql://user:password@host:5432/database"),
    _Secret("REDIS_URL", "redis://:password@host:6379/0"),
    _Secret("META_APP_SECRET", "it is on the app's dashboard at Meta, under App settings, Basic"),
    _Secret("META_APP_SECRET_FALLBACKS", "leave it out, or name your former secrets", "nobody"),
    _Secret("META_WEBHOOK_VERIFY_TOKEN", _RANDOM),
    _Secret("SANDBOX_APP_SECRET", _SANDBOX, "sandbox"),
    _Secret("SANDBOX_CONTROL_TOKEN", _SANDBOX, "sandbox"),
    _Secret("RAZORPAY_KEY_ID", _RAZORPAY, "billing"),
    _Secret("RAZORPAY_KEY_SECRET", _RAZORPAY, "billing"),
    _Secret("RAZORPAY_WEBHOOK_SECRETS", _RAZORPAY, "billing"),
)


def require_production_values(env: Env) -> None:
    """Reject a production environment with a missing or published secret, or without a count of proxies.

    Raises ImproperlyConfigured, which names every such variable and how to create its value, but shows no value.
    """
    parts = {"service"}
    if env.str("SANDBOX_GRAPH_URL", ""):
        parts.add("sandbox")
    if env.bool("BILLING_ENABLED", False):
        parts.add("billing")
    problems = [
        f"{secret.name} {problem}: {secret.how}"
        for secret in _SECRETS
        if (problem := _problem(env.str(secret.name, ""), required=secret.used_by in parts))
    ]
    if not env.str("TRUSTED_PROXY_COUNT", "").isdecimal():
        problems.append(
            "TRUSTED_PROXY_COUNT is not set to a number: how many proxies in front append to X-Forwarded-For, 0 where "
            "there is none; without it, wrong passwords of one stranger lock everybody out"
        )
    if problems:
        raise ImproperlyConfigured(
            "\n  ".join(["ENVIRONMENT=production does not start with these values:", *problems])
        )


def _problem(text: str, *, required: bool) -> str | None:
    values = [value.strip() for value in text.split(",") if value.strip()]
    if required and not values:
        return "is not set"
    if any(value in _PUBLISHED or value.startswith(_PLACEHOLDER) for value in values):
        return "is a published value"
    return None
