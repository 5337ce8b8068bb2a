"""One blocking call of the Graph API with a JSON body: prepared by `calls.py`, sent by `blocking_pool.py`."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.upstream.blocking_pool import blocking_pool
from gateway.upstream.calls import GraphAnswer, prepare


def request(
    *,
    environment: str,
    method: str,
    path: str,
    token: str | None,
    params: Mapping[str, str] | None = None,
    json: Any = None,
    body: bytes | None = None,
) -> GraphAnswer:
    """Prepare and send; `json` is serialised, `body` goes as it is. Raises UpstreamUnreachable."""
    payload = orjson.dumps(json) if json is not None else body
    return blocking_pool().send(
        prepare(environment=environment, method=method, path=path, token=token, params=params, body=payload)
    )
