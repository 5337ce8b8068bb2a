"""Return URLs of connect sessions: the address that a tenant named, checked when it is named."""

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

MAX_LENGTH = 2048
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def problem_of(url: str) -> str | None:
    """What is wrong with a return_url, or None. Only https, or http on this machine; nothing browsers read twice."""
    if len(url) > MAX_LENGTH:
        return f"Must be at most {MAX_LENGTH} characters."
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "Must be a plain ASCII address: percent-encode other characters."
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "Is not a valid address."
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
        return "Must begin with https:// (http:// for localhost)."
    if not parts.hostname or parts.username is not None or parts.password is not None:
        return "Must name a host, without a user name."
    return None


def with_result(url: str, *, session_id: str, status: str) -> str:
    """The return_url with `session_id` and `status` in its query; members of those names in it give way."""
    parts = urlsplit(url)
    own = {"session_id": session_id, "status": status}
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in own]
    return urlunsplit(parts._replace(query=urlencode([*kept, *own.items()])))
