"""Request bodies that are read from a file as they go out: the file alone, and a multipart form around it."""

import re
import secrets
from collections.abc import Iterator
from typing import IO

_READ_BYTES = 64 * 1024


class FileBody:
    """The next `length` bytes of a file as a body that is read as it goes out."""

    def __init__(self, file: IO[bytes], *, length: int) -> None:
        self._file, self._length = file, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        left = self._length
        while left and (piece := self._file.read(min(left, _READ_BYTES))):
            yield piece
            left -= len(piece)


class MultipartFile:
    """A multipart form with one file, as a body of known length: what is sent comes from the file as it goes out.

    aiohttp's and urllib3's forms are built in memory, which a file of 100 MB is too large for; requests-toolbelt, whose
    encoder streams, had its last release in May 2023.
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
        self._head = (
            f"{fields}--{boundary}\r\n"
            f'Content-Disposition: form-data; name="file"; filename="{_quoted(name)}"\r\n'
            f"Content-Type: {_line(mime_type)}\r\n\r\n"
        ).encode()
        self._file = FileBody(file, length=length)
        self._tail = f"\r\n--{boundary}--\r\n".encode()

    def __len__(self) -> int:
        return len(self._head) + len(self._file) + len(self._tail)

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        yield from self._file
        yield self._tail


def _line(text: str) -> str:
    """A header's value: no line may end in it."""
    return re.sub(r"[\r\n\0]", " ", text)


def _quoted(name: str) -> str:
    """A file name inside quotes, as browsers write it."""
    return _line(name).replace("\\", "_").replace('"', "%22")
