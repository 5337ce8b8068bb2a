"""The columns of an endpoint's row that say where and how to send, read together with its deliveries."""

from datetime import datetime
from typing import NamedTuple


class StoredTarget(NamedTuple):
    """As the database has them: secrets and headers are ciphertexts."""

    url: str
    format: str
    secret: str
    previous_secret: str | None
    previous_secret_expires_at: datetime | None
    headers: str | None
    timeout_seconds: int | None


TARGET_COLUMNS = ", ".join(f"e.{name}" for name in StoredTarget._fields)
"""SQL: the columns of a `StoredTarget`, of an endpoint `e`."""
