"""Addresses of the embedded Postgres and Valkey of a data directory. This module starts no server.

The settings call it, so a `manage.py` command reaches the servers of a `make run` with the same `DATA_DIR`.
`gateway/local_run/embedded_servers.py` starts and stops the servers.
"""

import hashlib
import os
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

DATABASE = "gateway"
DATABASE_USER = "gateway"
POSTGRES_SOCKET = ".s.PGSQL.5432"
VALKEY_SOCKET = "valkey.sock"
MAX_SOCKET_PATH = 103
"""Maximum length of a Unix socket's path in bytes: macOS allows 103, Linux 107."""


def socket_dir(data_dir: Path) -> Path:
    """The folder of a data directory's sockets: inside it, or under /tmp if a path inside is too long.

    `tempfile.gettempdir()` would depend on TMPDIR, but every process must compute the same path.
    """
    inside = data_dir.absolute() / "run"
    if len(os.fsencode(inside / POSTGRES_SOCKET)) <= MAX_SOCKET_PATH:
        return inside
    digest = hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:16]
    return Path("/tmp") / f"gateway-{digest}"  # noqa: S108 - owner and mode are checked before it is used


def database_url(data_dir: Path, *, database: str = DATABASE) -> str:
    """The embedded Postgres as a URL that libpq and django-environ can read."""
    query = urlencode({"host": str(socket_dir(data_dir)), "port": "5432"}, quote_via=quote)
    return f"postgresql://{DATABASE_USER}@/{database}?{query}"


def valkey_url(data_dir: Path) -> str:
    """The embedded Valkey as a URL for redis-py."""
    return f"unix://{quote(str(socket_dir(data_dir) / VALKEY_SOCKET))}?db=0"


def celery_broker_url(redis_url: str) -> str:
    """A redis-py URL in Celery's form: `unix://…?db=1` becomes `redis+socket://…?virtual_host=1`."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    query = [("virtual_host" if name == "db" else name, value) for name, value in parse_qsl(parts.query)]
    return f"redis+socket://{parts.netloc}{parts.path}?{urlencode(query, quote_via=quote)}"
