"""Profiles: a service's address and a key. The key is in the system's keyring or in a file that only the user reads.

Programs read profiles without the command line's packages.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whabuzz.calls import address_of
from whabuzz.errors import WhabuzzError

SERVICE = "whabuzz"
"""The name of the service under which the keyring stores keys."""


@dataclass(frozen=True)
class Credentials:
    """A key, and the address of its service."""

    base_url: str
    api_key: str
    place: str
    """Where the key is stored: `environment`, `keyring` or `file`."""

    @property
    def environment(self) -> str:
        """The environment of the key: `live` or `test`."""
        return "live" if self.api_key.startswith("wb_live_") else "test"


class Profiles:
    """The profiles of this user. Without a keyring, the keys are in a file that only its owner can read."""

    def __init__(self, directory: Path | None = None) -> None:
        chosen = os.environ.get("WHABUZZ_CONFIG_DIR")
        self._file = (directory or (Path(chosen) if chosen else _directory())) / "profiles.json"

    def credentials(self, profile: str) -> Credentials | None:
        """The credentials of the environment variables, else those of the profile. None if there are neither.

        A key is only for its own service. Raises WhabuzzError for a key in the environment without an address, and for
        an address in the environment that is not the profile's.
        """
        api_key, base_url = os.environ.get("WHABUZZ_API_KEY"), os.environ.get("WHABUZZ_BASE_URL")
        if api_key and base_url:
            return Credentials(address_of(base_url), api_key.strip(), "environment")
        if api_key:
            raise WhabuzzError("WHABUZZ_API_KEY is set, but not the key's service: set WHABUZZ_BASE_URL too.")
        stored = self._read().get(profile)
        if stored is None:
            return None
        if base_url and address_of(base_url) != stored["base_url"]:
            raise WhabuzzError(
                f"WHABUZZ_BASE_URL is {base_url}, but the key of this profile is for {stored['base_url']}: set "
                "WHABUZZ_API_KEY too, or unset WHABUZZ_BASE_URL."
            )
        place = "file" if "api_key" in stored else "keyring"
        key = stored.get("api_key") or _keyring_get(profile)
        return Credentials(stored["base_url"], key, place) if key else None

    def base_url(self, profile: str) -> str | None:
        """The service's address from the environment, else from the profile. None if it is in neither."""
        named = os.environ.get("WHABUZZ_BASE_URL") or self._read().get(profile, {}).get("base_url")
        return str(named) if named else None

    def keep(self, profile: str, *, base_url: str, api_key: str, use_keyring: bool = True) -> str:
        """Store a profile with its key. Returns where the key is stored."""
        stored: dict[str, Any] = {"base_url": base_url}
        in_keyring = use_keyring and _keyring_set(profile, api_key)
        if not in_keyring:
            stored["api_key"] = api_key
        self._write({**self._read(), profile: stored})
        return "the system's keyring" if in_keyring else str(self._file)

    def forget(self, profile: str) -> None:
        """Delete a profile and its key."""
        profiles = self._read()
        if profiles.pop(profile, None) is not None:
            _keyring_delete(profile)
            self._write(profiles)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            with self._file.open() as file:
                if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise WhabuzzError(f"{self._file} is open to other users: run `chmod 600 {self._file}`.")
                found: dict[str, dict[str, Any]] = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError:
            raise WhabuzzError(f"{self._file} is not JSON: fix or delete it.") from None
        return found

    def _write(self, profiles: dict[str, dict[str, Any]]) -> None:
        write_private(self._file, profiles)

    def beside(self, name: str) -> Path:
        """The path of another file in the folder of the profiles."""
        return self._file.with_name(name)


def _directory() -> Path:
    """The folder of this user's settings."""
    if sys.platform == "win32":
        parent = os.environ.get("APPDATA") or Path.home()
    elif sys.platform == "darwin":
        parent = Path.home() / "Library/Application Support"
    else:
        parent = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(parent) / "whabuzz"


def write_private(target: Path, value: Any) -> None:
    """Replace a JSON file atomically with a new one that only its owner can read."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(value, file, indent=2)
    fresh.replace(target)


def _keyring() -> Any:
    """The package `keyring`. None unless it is installed (the extra `keyring`)."""
    try:
        import keyring
        import keyring.errors
    except ImportError:
        return None
    return keyring


def _keyring_set(profile: str, api_key: str) -> bool:
    keyring = _keyring()
    if keyring is None:
        return False
    try:
        keyring.set_password(SERVICE, profile, api_key)
        return bool(keyring.get_password(SERVICE, profile) == api_key)
    except keyring.errors.KeyringError:
        return False


def _keyring_get(profile: str) -> str | None:
    keyring = _keyring()
    if keyring is None:
        raise WhabuzzError(
            "The key of this profile is in the system's keyring, and this Python lacks the package keyring: install it "
            "with `pip install keyring`."
        )
    try:
        found: str | None = keyring.get_password(SERVICE, profile)
    except keyring.errors.KeyringError as error:
        raise WhabuzzError(f"The keyring cannot be opened: {error}") from None
    return found


def _keyring_delete(profile: str) -> None:
    keyring = _keyring()
    if keyring is None:
        return
    try:
        keyring.delete_password(SERVICE, profile)
    except keyring.errors.KeyringError:
        return
