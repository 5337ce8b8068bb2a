"""The file of a batch: the rows of a CSV file as messages. Errors in rows are found before anything is sent."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from whabuzz.cli.send import phone_number_of, template_of

_ADDRESS = re.compile(r"\+?\d{7,15}")
_LONGEST_WITHOUT_COUNTRY = 10
"""Without `+`, WhatsApp takes this many digits for a national number, and adds the sending number's country code."""
_BREAKS = re.compile(r"[\n\r\t]| {5}")
"""What WhatsApp refuses in a value for a template."""
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")

Row = dict[str, str]
Content = Callable[[Row], dict[str, Any]]
"""Makes a row's message without `to`. Raises ValueError for a row with an empty value."""


@dataclass(frozen=True)
class Problem:
    """An error in a line of the file."""

    line: int
    text: str


class People:
    """A CSV file with a header. Each row is a customer."""

    def __init__(self, path: Path, *, to_column: str, content: Content, needed: list[str]) -> None:
        self.path = path
        self._to, self._content = to_column, content
        with self._opened() as file:
            self.header = next(csv.reader(file), [])
        if missing := [name for name in (to_column, *needed) if name not in self.header]:
            known = ", ".join(self.header) or "none"
            raise click.UsageError(f"{path} has no column {', '.join(missing)}. Its columns: {known}.")

    def problems(self, *, most: int) -> list[Problem]:
        """The first `most` errors of rows, as far as they can be found without the service."""
        found = []
        for line, row in self.rows():
            if text := self._problem(row):
                found.append(Problem(line, text))
                if len(found) == most:
                    break
        return found

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages in the order of the file."""
        for _, row in self.rows():
            yield {"to": self._address(row), **self._content(row)}

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with its line number. Empty rows are left out."""
        with self._opened() as file:
            reader = csv.DictReader(file, restval="")
            for row in reader:
                row.pop(None, None)
                if any(row.values()):
                    yield reader.line_num, row

    def fingerprint(self, *what: str) -> str:
        """A hash of the file and of the options in `what`. The same file and options always have the same hash."""
        digest = hashlib.sha256("\0".join(what).encode())
        with self.path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
        return digest.hexdigest()[:32]

    def _problem(self, row: Row) -> str | None:
        number = phone_number_of(row[self._to])
        if not _ADDRESS.fullmatch(number):
            return f"{row[self._to]!r} is not a phone number with its country code."
        if len(number) <= _LONGEST_WITHOUT_COUNTRY and not number.startswith("+"):
            return f"{row[self._to]!r} lacks its country code: write it with + and the code, such as +91."
        try:
            self._content(row)
        except ValueError as error:
            return str(error)
        return None

    def _address(self, row: Row) -> str:
        return "+" + phone_number_of(row[self._to]).lstrip("+")

    @contextmanager
    def _opened(self) -> Iterator[IO[str]]:
        """The open file. Raises click.UsageError when reading shows that it is not a CSV file in UTF-8."""
        try:
            # Spreadsheet programs write a byte order mark at the beginning of a CSV file.
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                yield file
        except UnicodeDecodeError:
            raise click.UsageError(
                f"{self.path} is not UTF-8 text. In Excel, save it as “CSV UTF-8 (comma delimited)”."
            ) from None
        except csv.Error as error:
            raise click.UsageError(f"{self.path} cannot be read: {error}.") from None


def template_content(name: str, language: str, parameters: list[str]) -> Content:
    """The content of a template message. The parameters of its body are the values of the columns in `parameters`."""

    def content(row: Row) -> dict[str, Any]:
        if empty := [column for column in parameters if not row[column].strip()]:
            raise ValueError(f"{', '.join(empty)} is empty.")
        if broken := [column for column in parameters if _BREAKS.search(row[column])]:
            raise ValueError(
                f"{', '.join(broken)} has a line break, a tab or more than four blanks in a row."
            )
        return template_of(name, language, [row[column] for column in parameters])

    return content


def text_content(text: str) -> Content:
    """The content of a text message. Each `{column}` in the text becomes the row's value."""

    def content(row: Row) -> dict[str, Any]:
        return {"type": "text", "text": {"body": _PLACEHOLDER.sub(lambda found: row[found[1]], text)}}

    return content


def columns_in(text: str) -> list[str]:
    """The names of the columns in a text with `{column}`."""
    return _PLACEHOLDER.findall(text)
