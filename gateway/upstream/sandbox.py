"""Control calls of the sandbox: what only the simulator's own side can do, such as a customer who writes.

The simulator answers only callers that know `SANDBOX_CONTROL_TOKEN`.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from django.conf import settings

from gateway.upstream.blocking_pool import blocking_pool
from gateway.upstream.calls import GraphAnswer, GraphCall, UpstreamUnreachable


def control(
    method: str, path: str, *, json: Any = None, params: Mapping[str, str] | None = None
) -> GraphAnswer:
    """Call `/sim/{path}` of the simulator. Raises UpstreamUnreachable, also where the sandbox is off."""
    if not settings.SANDBOX_GRAPH_URL:
        raise UpstreamUnreachable("sandbox_off", 0.0, is_unsent=True)
    headers = {"Accept": "application/json", "User-Agent": settings.SERVICE_NAME}
    if settings.SANDBOX_CONTROL_TOKEN:
        headers["Authorization"] = f"Bearer {settings.SANDBOX_CONTROL_TOKEN}"
    body = None
    if json is not None:
        headers["Content-Type"] = "application/json"
        body = orjson.dumps(json)
    url = f"{settings.SANDBOX_GRAPH_URL}/sim/{path}"
    if params:
        url += "?" + urlencode(params)
    return blocking_pool().send(GraphCall(method, url, headers, body))


def accepted(answer: GraphAnswer) -> dict[str, Any]:
    """The answer's object. Raises UpstreamUnreachable for a refusal, which no caller could repair."""
    if not answer.ok:
        raise UpstreamUnreachable(f"sandbox_{answer.status}", answer.ms, is_unsent=False)
    return answer.json()
