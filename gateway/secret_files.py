"""Secrets from files: a variable `NAME_FILE` names the file that holds the value of `NAME`."""

from collections.abc import MutableMapping

import environ


class FilesOrVariables(environ.FileAwareMapping):  # type: ignore[misc] # django-environ has no types
    """The environment, read through `NAME_FILE` first. A line break at the end of a file is not part of its value."""

    def __getitem__(self, key: str) -> str:
        value: str = super().__getitem__(key)
        return value.rstrip("\r\n") if f"{key}_FILE" in self.env else value


class Env(environ.Env):  # type: ignore[misc]
    """The reader of settings. Raises OSError for a file that cannot be read."""

    ENVIRON: MutableMapping[str, str] = FilesOrVariables()
