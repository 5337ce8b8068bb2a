"""Media of the Graph API (upstream fact 1.2): upload, info, bytes, delete. Files are streamed, never held.

The bytes are behind an address that the info call gives, and that address is sent the account's token. So it must be
the upstream's own: an address anywhere else is refused before anything is sent.
"""

import io
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import IO, cast
from urllib.parse import urlsplit

from gateway.upstream.client import GraphAnswer, GraphCall, Stream, platform, prepare, request, send, stream

FILE_HOST = "lookaside.fbsbx.com"
"""Where the live upstream keeps the bytes; the simulator keeps them itself."""


class UnexpectedAddress(Exception):
    """The upstream named an address that is not its own: it does not get the token."""


@dataclass(frozen=True, slots=True)
class MediaGraph:
    """The Graph API's media as one number's token opens them."""

    environment: str
    token: str = field(repr=False)
    phone_number_id: str

    def upload(self, file: IO[bytes], *, length: int, name: str, mime_type: str) -> GraphAnswer:
        """`POST /{PNID}/media`: the file as it is read; the answer holds its id. Raises UpstreamUnreachable."""
        body = MultipartFile(
            {"messaging_product": "whatsapp", "type": mime_type},
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
        return send(
            replace(
                call,
                headers={**call.headers, "Content-Type": body.content_type},
                body=cast("IO[bytes]", body),
            )
        )

    def info(self, media_id: str) -> GraphAnswer:
        """`GET /{MEDIA}`: type, size, hash and the address of the bytes, if the media is the number's."""
        return self._call("GET", media_id)

    def delete(self, media_id: str) -> GraphAnswer:
        """`DELETE /{MEDIA}`, if the media is the number's."""
        return self._call("DELETE", media_id)

    def bytes_at(self, url: str) -> Stream:
        """The bytes at the address of an info call. Raises UnexpectedAddress or UpstreamUnreachable."""
        if not self.is_upstreams(url):
            raise UnexpectedAddress
        call = prepare(environment=self.environment, method="GET", path="", token=self.token)
        headers = {**call.headers, "Accept": "*/*", "Accept-Encoding": "identity"}
        return stream(GraphCall("GET", url, headers))

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


class MultipartFile(io.RawIOBase):
    """A multipart form with one file, as a stream of known length: what is read comes from the file as it goes out.

    requests builds a form in memory, which a file of 100 MB is too large for; requests-toolbelt, whose encoder streams,
    had its last release in May 2023.
    """

    def __init__(
        self, values: dict[str, str], file: IO[bytes], *, length: int, name: str, mime_type: str
    ) -> None:
        boundary = secrets.token_hex(16)
        self.content_type = f"multipart/form-data; boundary={boundary}"
        fields = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{_line(value)}\r\n'
            for key, value in values.items()
        )
        head = (
            f"{fields}--{boundary}\r\n"
            f'Content-Disposition: form-data; name="file"; filename="{_quoted(name)}"\r\n'
            f"Content-Type: {_line(mime_type)}\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        self._length = len(head) + length + len(tail)
        self._parts: list[IO[bytes]] = [io.BytesIO(head), file, io.BytesIO(tail)]

    def __len__(self) -> int:
        return self._length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while self._parts:
            if chunk := self._parts[0].read(len(buffer)):
                buffer[: len(chunk)] = chunk
                return len(chunk)
            self._parts.pop(0)
        return 0


def _line(text: str) -> str:
    """A header's value: no line may end in it."""
    return re.sub(r"[\r\n\0]", " ", text)


def _quoted(name: str) -> str:
    """A file name inside quotes, as browsers write it."""
    return _line(name).replace("\\", "_").replace('"', "%22")
