"""Signatures of notifications: which app signed a notification, and the answer to a subscription's challenge.

The signature is checked over the raw bytes, before the body is parsed. The upstream signs the bytes with their JSON
escapes, so a body that was parsed and serialised again would not match.
"""

import hmac
from collections.abc import Mapping

from django.conf import settings

from gateway.api.errors import Forbidden, InvalidRequest, Unauthorized

PREFIX = "sha256="

_SIGNED = (
    "Meta signs the raw bytes of the body with the app's secret (META_APP_SECRET), in the header "
    "`X-Hub-Signature-256: sha256=<HMAC-SHA256 in hex>`."
)
_VERIFY_TOKEN = (
    "Enter the value of META_WEBHOOK_VERIFY_TOKEN as the verify token of the app's webhook at Meta."
)


def sign(body: bytes, app_secret: str) -> str:
    """The value of `X-Hub-Signature-256` for `body`: `sha256=` and the HMAC-SHA256 in lower-case hex."""
    return PREFIX + hmac.digest(app_secret.encode(), body, "sha256").hex()


def verify(body: bytes, header: str | None, app_secret: str) -> bool:
    """Whether `header` is the signature of `body`, compared in constant time.

    False for a missing header. Also False while no app secret is configured, because anybody could sign with an empty
    key.
    """
    if not header or not app_secret:
        return False
    return hmac.compare_digest(sign(body, app_secret).encode(), header.encode("utf-8", "replace"))


def signing_environments(body: bytes, header: str | None) -> list[str]:
    """The environments whose current or previous app secret signed a notification. Raises Unauthorized if there is
    none.
    """
    accepted = {
        "live": [settings.META_APP_SECRET, *settings.META_APP_SECRET_FALLBACKS],
        "test": [settings.SANDBOX_APP_SECRET],
    }
    secrets = (secret for of_environment in accepted.values() for secret in of_environment)
    signing = next((secret for secret in secrets if verify(body, header, secret)), None)
    if signing is None:
        problem = "does not match the body" if header else "is missing"
        raise Unauthorized(f"The signature {problem}.", hint=_SIGNED)
    return [environment for environment, secrets in accepted.items() if signing in secrets]


def challenge(parameters: Mapping[str, str]) -> str:
    """Return the challenge that verifies a subscription, if the token is right (upstream fact 3.1).

    Raises InvalidRequest for another mode, Forbidden for another token.
    """
    if parameters.get("hub.mode") != "subscribe":
        raise InvalidRequest.of(**{"hub.mode": "Must be subscribe."})
    token = parameters.get("hub.verify_token") or ""
    if not hmac.compare_digest(token.encode(), settings.META_WEBHOOK_VERIFY_TOKEN.encode()):
        raise Forbidden("The verify token does not match.", hint=_VERIFY_TOKEN)
    return parameters.get("hub.challenge") or ""
