"""Media of the Graph API (upstream fact 1.2): upload, info, bytes, delete. Files are streamed, never held.

The bytes are behind an address that the info call gives, and that address is sent the account's token. So it must be
the upstream's own: an address anywhere else is refused before anything is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import IO
from urllib.parse import quote, urlsplit

from gateway.upstream import client
from gateway.upstream.calls import GraphAnswer, GraphCall, platform, prepare
from gateway.upstream.client import MultipartFile, Stream, request

FILE_HOST = "lookaside.fbsbx.com"
"""Where the live upstream keeps the bytes; the simulator keeps them itself."""


_KEPT_IN_ADDRESSES = "!#$%&'()*+,/:;=?@[]~"
"""What an address may hold (RFC 3986, 2); anything else in one that was answered is percent-encoded."""


class UnexpectedAddress(Exception):
    """The upstream named an address that is not its own: it does not get the token."""


@dataclass(frozen=True, slots=True)
class MediaGraph:
    """The Graph API's media as one number's token opens them."""

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
        """`POST /{PNID}/media`: the file as it is read, and other fields of its form such as `ttl_minutes`.

        The answer holds its id. Raises UpstreamUnreachable.
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
        return client.send(replace(call, headers=headers, body=body))

    def info(self, media_id: str) -> GraphAnswer:
        """`GET /{MEDIA}`: type, size, hash and the address of the bytes, if the media is the number's."""
        return self._call("GET", media_id)

    def delete(self, media_id: str) -> GraphAnswer:
        """`DELETE /{MEDIA}`, if the media is the number's."""
        return self._call("DELETE", media_id)

    def bytes_at(self, url: str, *, asked: Mapping[str, str] | None = None) -> Stream:
        """The bytes at the address of an info call; `asked` is headers such as `Range`.

        Raises UnexpectedAddress or UpstreamUnreachable.
        """
        if not self.is_upstreams(url):
            raise UnexpectedAddress
        call = prepare(environment=self.environment, method="GET", path="", token=self.token)
        headers = {**call.headers, "Accept": "*/*", "Accept-Encoding": "identity", **(asked or {})}
        return client.stream(GraphCall("GET", quote(url, safe=_KEPT_IN_ADDRESSES), headers))

    def is_upstreams(self, url: str) -> bool:
        """Whether an address may be sent the token: the Graph API's own host, or the live upstream's file host."""
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

    def _call(self, method: str, media_id: str) -> GraphAnswer:
        return request(
            environment=self.environment,
            method=method,
            path=media_id,
            token=self.token,
            params={"phone_number_id": self.phone_number_id},
        )
