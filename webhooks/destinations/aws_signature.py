"""Signature Version 4 of AWS requests, which S3-compatible stores and SQS-compatible queues also check.

Source: "Create a signed AWS API request", AWS Identity and Access Management user guide. The path is signed as it is
sent, because the service's object keys need no second encoding.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.monitoring.logs import type_alone


class AwsKeys(NamedTuple):
    """An access key, with the region and the service for which it signs."""

    access_key_id: str
    secret_access_key: str
    region: str
    service: str

    def __repr__(self) -> str:
        return type_alone(self)


def signed(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, keys: AwsKeys, at: datetime
) -> dict[str, str]:
    """The headers of a request with its signature for the time `at`. The URL must have no query."""
    parts = urlsplit(url)
    moment, digest = at.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    sent = {**headers, "X-Amz-Date": moment, "X-Amz-Content-SHA256": digest}
    signing = sorted((name.lower(), value) for name, value in {**sent, "Host": parts.netloc}.items())
    names = ";".join(name for name, _ in signing)
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in signing)
    canonical = f"{method}\n{parts.path or '/'}\n\n{lines}\n{names}\n{digest}"
    scope = f"{moment[:8]}/{keys.region}/{keys.service}/aws4_request"
    key = f"AWS4{keys.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return {
        **sent,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={keys.access_key_id}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}",
    }
