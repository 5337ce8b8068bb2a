"""Serving of the built documentation: WhiteNoise below `/docs/`, with a content security policy of its own."""

import json
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path

SITE = Path(__file__).resolve().parents[2] / "site"
"""What `make guides` writes: `public/` is served, `csp.json` holds the hashes of the pages' inline scripts."""
PUBLIC = SITE / "public"


def add_headers(headers: MutableMapping[str, str], path: str, url: str) -> None:
    """Allow a page's own inline scripts and nothing from elsewhere; the theme sets styles inline."""
    if url.startswith("/docs/"):
        headers["Content-Security-Policy"] = _policy(Path(path.partition("/public/")[0]) / "csp.json")
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "same-origin"
        if path.endswith(".md"):
            headers["Content-Type"] = "text/markdown; charset=utf-8"


@cache
def _policy(hashes: Path) -> str:
    scripts = " ".join(f"'{value}'" for value in json.loads(hashes.read_text()))
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
