"""App secrets and the verify token: who signed a notification, and the answer to a subscription's challenge."""

import hmac
from collections.abc import Mapping

from django.conf import settings

from gateway.api.errors import Forbidden, InvalidRequest, Unauthorized
from gateway.upstream.notifications import signature


def signing_environments(body: bytes, header: str | None) -> list[str]:
    """The environments whose app secret, or a former one, signed a notification. Raises Unauthorized when none did."""
    secrets = {
        "live": [settings.META_APP_SECRET, *settings.META_APP_SECRET_FALLBACKS],
        "test": [settings.SANDBOX_APP_SECRET],
    }
    environments = [
        environment
        for environment, accepted in secrets.items()
        if any(signature.verify(body, header, secret) for secret in accepted)
    ]
    if not environments:
        raise Unauthorized("The signature does not match the body.")
    return environments


def signed_by(environment: str, body: bytes) -> str:
    """The signature of a body by the app of an environment, for a part of a notification that it had signed."""
    secret = settings.META_APP_SECRET if environment == "live" else settings.SANDBOX_APP_SECRET
    return signature.sign(body, secret)


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
