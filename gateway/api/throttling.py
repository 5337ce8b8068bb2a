"""The rate limit of the service's own API: a token bucket per tenant; without Valkey everything is allowed."""

import math
from typing import Any

import structlog
from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from gateway import token_bucket
from gateway.api.authentication import Caller
from gateway.api.errors import RateLimited
from gateway.valkey import UNAVAILABLE

log = structlog.get_logger(__name__)


class TenantRateThrottle(BaseThrottle):
    """Answers 429 `rate_limited` with Retry-After; every answer carries RateLimit-Limit/-Remaining/-Reset."""

    def allow_request(self, request: Request, view: Any) -> bool:
        caller = request.user
        if not isinstance(caller, Caller):
            return True
        try:
            verdict = token_bucket.take(
                f"rate:{caller.rate_key}", rate=settings.API_RATE_PER_SECOND, burst=settings.API_RATE_BURST
            )
        except UNAVAILABLE as error:
            log.warning("rate_limit_unavailable", error=type(error).__name__)
            return True
        headers = {
            "RateLimit-Limit": str(settings.API_RATE_BURST),
            "RateLimit-Remaining": str(verdict.remaining),
            "RateLimit-Reset": str(math.ceil(verdict.reset_after)),
        }
        request._request.rate_limit_headers = headers  # type: ignore[attr-defined]
        if not verdict.allowed:
            raise RateLimited(headers={"Retry-After": str(max(1, math.ceil(verdict.retry_after)))})
        return True
