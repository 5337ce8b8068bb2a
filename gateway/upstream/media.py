"""Media of the Graph API (upstream fact 1.2): upload, info, bytes, delete. Files are streamed, never held in memory.

The info call returns the address of the bytes. A request to that address carries the account's token, so the address
must be Meta's own. Any other address is rejected before anything is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import IO
from urllib.parse import quote, urlencode, urlsplit

from django.conf import settings

from gateway.upstream import blocking_client
from gateway.upstream.blocking_client import MultipartFile, Stream, request
from gateway.upstream.calls import GraphAnswer, GraphCall, platform, prepare

FILE_HOST = "lookaside.fbsbx.com"
"""The host where Meta stores the bytes. The simulator stores them itself."""


_KEPT_IN_ADDRESSES = "!#$%&'()*+,/:;=?@[]~"
"""Characters that an address may contain (RFC 3986, 2). Any other character in an answer is percent-encoded."""


class UnexpectedAddress(Exception):
    """Meta returned an address of another host. The service does not send the token there."""


@dataclass(frozen=True, slots=True)
class MediaGraph:
    """The Graph API's media with the token of one number."""

    environment: str
    token: str = field(repr=False)
    phone_number_id: str

    def upload(
        self,
        file: IO[bytes],
        *,
        length: int,
        name: str,
        mime_type: str,
        others: Mapping[str, str] | None = None,
    ) -> GraphAnswer:
        """`POST /{PNID}/media`: the streamed file, and other fields of its form such as `ttl_minutes`.

        The answer contains the id of the media. Raises UpstreamUnreachable.
        """
        body = MultipartFile(
            {**(others or {}), "messaging_product": "whatsapp", "type": mime_type},
            file,
            length=length,
            name=name,
            mime_type=mime_type,
        )
        call = prepare(
            environment=self.environment,
            method="POST",
            path=f"{self.phone_number_id}/media",
            token=self.token,
        )
        headers = {**call.headers, "Content-Type": body.content_type}
        return blocking_client.send(replace(call, headers=headers, body=body))

    def info(self, media_id: str, *, is_own: bool) -> GraphAnswer:
        """`GET /{MEDIA}`: type, size, hash and the address of the bytes.

        Unless the media is known to be the number's own, Meta compares the number. For received media, Meta refuses a
        call that names a number.
        """
        return self._call("GET", media_id, is_own=is_own)

    def delete(self, media_id: str, *, is_own: bool) -> GraphAnswer:
        """`DELETE /{MEDIA}`. Meta compares the number as for `info`."""
        return self._call("DELETE", media_id, is_own=is_own)

    def bytes_at(self, url: str, *, asked: Mapping[str, str] | None = None) -> Stream:
        """The bytes at the address of an info call. `asked` are headers such as `Range`.

        Raises UnexpectedAddress or UpstreamUnreachable.
        """
        if not self.is_upstreams(url):
            raise UnexpectedAddress
        call = prepare(environment=self.environment, method="GET", path="", token=self.token)
        headers = {**call.headers, "Accept": "*/*", "Accept-Encoding": "identity", **(asked or {})}
        return blocking_client.stream(GraphCall("GET", quote(url, safe=_KEPT_IN_ADDRESSES), headers))

    def is_upstreams(self, url: str) -> bool:
        """Whether an address may receive the token: one of the Graph API or, in the live environment, of Meta's
        file host.
        """
        try:
            address, own = urlsplit(url), urlsplit(platform(self.environment).graph_url)
            port = address.port
        except ValueError:
            return False
        if (address.scheme, address.netloc) == (own.scheme, own.netloc):
            return True
        return (
            self.environment == "live"
            and address.scheme == "https"
            and address.netloc in {FILE_HOST, f"{FILE_HOST}:443"}
            and port in {None, 443}
        )

    def _call(self, method: str, media_id: str, *, is_own: bool) -> GraphAnswer:
        return request(
            environment=self.environment,
            method=method,
            path=media_id,
            token=self.token,
            params=None if is_own else {"phone_number_id": self.phone_number_id},
        )


def media_url(media_id: str, phone_number_id: str | None = None) -> str:
    """The service's own address of a media's bytes, for a key of the tenant. It replaces Meta's address, which
    requires the account's token. The number is needed for media that the service has not recorded.
    """
    query = f"?{urlencode({'phone_number_id': phone_number_id})}" if phone_number_id else ""
    return f"{settings.BASE_URL}/{settings.META_GRAPH_VERSION}/{media_id}/content{query}"
