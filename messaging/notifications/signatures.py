"""Signatures of notifications: who signed one, and the answer to a subscription's challenge.

The signature is checked before anything parses the body, over the raw bytes only: the upstream signs what is on the
wire, its escapes included, so a body that was parsed and serialised again never verifies.
"""

import hmac
from collections.abc import Mapping

from django.conf import settings

from gateway.api.errors import Forbidden, InvalidRequest, Unauthorized

PREFIX = "sha256="


def sign(body: bytes, app_secret: str) -> str:
    """The value of `X-Hub-Signature-256` for `body`: `sha256=` and the HMAC-SHA256 in lower-case hex."""
    return PREFIX + hmac.digest(app_secret.encode(), body, "sha256").hex()


def verify(body: bytes, header: str | None, app_secret: str) -> bool:
    """Whether `header` is the signature of `body`; takes the same time at whatever place a wrong one differs.

    A missing header is False, and so is everything while no app secret is configured: an empty key would let
    anybody sign.
    """
    if not header or not app_secret:
        return False
    return hmac.compare_digest(sign(body, app_secret).encode(), header.encode("utf-8", "replace"))


def signing_environments(body: bytes, header: str | None) -> list[str]:
    """The environments whose app secret, or a former one, signed a notification. Raises Unauthorized when none did."""
    secrets = {
        "live": [settings.META_APP_SECRET, *settings.META_APP_SECRET_FALLBACKS],
        "test": [settings.SANDBOX_APP_SECRET],
    }
    environments = [
        environment
        for environment, accepted in secrets.items()
        if any(verify(body, header, secret) for secret in accepted)
    ]
    if not environments:
        raise Unauthorized("The signature does not match the body.")
    return environments


def signed_by(environment: str, body: bytes) -> str:
    """The signature of a body by the app of an environment, for a part of a notification that it had signed."""
    secret = settings.META_APP_SECRET if environment == "live" else settings.SANDBOX_APP_SECRET
    return sign(body, secret)


def challenge(parameters: Mapping[str, str]) -> str:
    """The answer to a subscription's verification: the challenge for the right token (upstream fact 3.1).

    Raises InvalidRequest for another mode, Forbidden for another token.
    """
    if parameters.get("hub.mode") != "subscribe":
        raise InvalidRequest.of(**{"hub.mode": "Must be subscribe."})
    token = parameters.get("hub.verify_token") or ""
    if not hmac.compare_digest(token.encode(), settings.META_WEBHOOK_VERIFY_TOKEN.encode()):
        raise Forbidden("The verify token does not match.")
    return parameters.get("hub.challenge") or ""
