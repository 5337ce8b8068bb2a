"""App secrets and the verify token: who signed a notification, and the answer to a subscription's challenge."""

import hmac
from collections.abc import Mapping

from django.conf import settings

from gateway.api.errors import Forbidden, InvalidRequest, Unauthorized
from gateway.upstream.notifications import signature


def signing_environments(body: bytes, header: str | None) -> list[str]:
    """The environments whose app secret signed a notification. Raises Unauthorized when none did."""
    environments = [
        environment for environment, secret in _secrets().items() if signature.verify(body, header, secret)
    ]
    if not environments:
        raise Unauthorized("The signature does not match the body.")
    return environments


def signed_by(environment: str, body: bytes) -> str:
    """The signature of a body by the app of an environment, for a part of a notification that it had signed."""
    return signature.sign(body, _secrets()[environment])


def _secrets() -> dict[str, str]:
    return {"live": settings.META_APP_SECRET, "test": settings.SANDBOX_APP_SECRET}


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
