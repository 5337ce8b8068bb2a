"""The signature that the upstream puts on each notification.

Called by the incoming flow before anything parses the body, and by tests and tools that play the upstream.
It promises to look at the raw bytes only: the upstream signs what is on the wire, its escapes included, so
a body that was parsed and serialised again never verifies.
"""

import hmac

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
