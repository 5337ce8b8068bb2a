"""URLs that customers choose: their allowed form, and how they are sent.

Checked when a webhook endpoint or a website is saved, parsed again when `gateway.outbound.client` sends to it. Only
the form is judged here; where the host leads is judged at every connection, since names change.
"""

import re
from functools import lru_cache

from yarl import URL

MAX_URL_LENGTH = 2048


class InvalidUrlError(ValueError):
    """A URL that the service does not call; the message is a sentence for the customer."""


def validate_url(url: str, *, allow_http: bool) -> str:
    """Return `url` unchanged, or raise `InvalidUrlError`.

    https, or http where `allow_http`; a host; any port; no user information; no fragment; at most 2,048
    characters. Host names may be written in any script, path and query are percent-encoded.
    """
    if len(url) > MAX_URL_LENGTH:
        raise InvalidUrlError(f"The URL is longer than {MAX_URL_LENGTH} characters.")
    if "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        raise InvalidUrlError("The URL contains whitespace, a backslash or a control character.")
    scheme, separator, rest = url.partition("://")
    allowed = ("https", "http") if allow_http else ("https",)
    if not separator or scheme.lower() not in allowed:
        raise InvalidUrlError(f"The URL must begin with {' or '.join(f'{name}://' for name in allowed)}.")
    if "#" in rest:
        raise InvalidUrlError("The URL must not have a fragment.")
    authority = _authority(rest)
    if "@" in authority:
        raise InvalidUrlError("The URL must not carry user information.")
    if not rest[len(authority) :].isascii():
        raise InvalidUrlError("The path and query of the URL must be percent-encoded.")
    parse_url(url)
    return url


@lru_cache(maxsize=4096)
def parse_url(url: str) -> URL:
    """A URL ready to be sent: path and query byte for byte, the host in its ASCII form (IDNA).

    Raises `InvalidUrlError` when it has no host, or none that can be encoded, or no usable port.
    """
    scheme, _, rest = url.partition("://")
    authority = _authority(rest)
    path = rest[len(authority) :]
    try:
        origin = URL(f"{scheme}://{authority}").origin()
        parsed = URL(f"{origin}{path if path.startswith('/') else '/' + path}", encoded=True)
        usable = bool(parsed.raw_host and parsed.port)
    except ValueError:
        usable = False
    if not usable:
        raise InvalidUrlError("The URL has no valid host and port.")
    return parsed


def _authority(rest: str) -> str:
    return re.split("[/?#]", rest, maxsplit=1)[0]
