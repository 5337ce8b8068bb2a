"""Files of the simulator, in memory and bounded: uploads of businesses and media of customers.

Each account has its own limit, so an account with many uploads drops only its own oldest files.
"""

import hashlib
import time
from collections import defaultdict

from simulator.world.identifiers import new_id
from simulator.world.records import Media, Number

MOST_BYTES = 192 * 1024 * 1024
MOST_BYTES_OF_ACCOUNT = 128 * 1024 * 1024


class MediaStore:
    """All files by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Media] = {}
        self._of_account: defaultdict[str, dict[str, Media]] = defaultdict(dict)
        self._bytes_of_account: defaultdict[str, int] = defaultdict(int)
        self.bytes = 0

    def __contains__(self, media_id: str) -> bool:
        return media_id in self._by_id

    def get(self, media_id: str) -> Media | None:
        """The file with this id. None if it is unknown, deleted or expired."""
        media = self._by_id.get(media_id)
        return None if media is None or media.expires_at < time.time() else media

    def store(
        self,
        number: Number,
        *,
        data: bytes,
        mime_type: str,
        filename: str | None,
        days: int,
        is_received: bool = False,
    ) -> Media:
        """Store a file for `days`. When the files of its account exceed their limit, the account's oldest files are
        dropped. When all files together exceed their limit, the oldest of the account with the most bytes are dropped.
        """
        media = Media(
            id=new_id("51"),
            waba_id=number.waba_id,
            phone_number_id=number.id,
            mime_type=mime_type,
            filename=filename,
            sha256=hashlib.sha256(data).digest(),
            data=data,
            expires_at=time.time() + days * 86400,
            is_received=is_received,
        )
        own = self._of_account[media.waba_id]
        self._by_id[media.id] = own[media.id] = media
        self.bytes += len(data)
        self._bytes_of_account[media.waba_id] += len(data)
        while self._bytes_of_account[media.waba_id] > MOST_BYTES_OF_ACCOUNT and len(own) > 1:
            self.drop(next(iter(own)))
        sizes = self._bytes_of_account
        while self.bytes > MOST_BYTES and len(self._by_id) > 1:
            others = [
                waba_id for waba_id, files in self._of_account.items() if files and files.keys() != {media.id}
            ]
            self.drop(next(iter(self._of_account[max(others, key=sizes.__getitem__)])))
        return media

    def drop(self, media_id: str) -> None:
        """Delete a file."""
        media = self._by_id.pop(media_id)
        del self._of_account[media.waba_id][media_id]
        self.bytes -= len(media.data)
        self._bytes_of_account[media.waba_id] -= len(media.data)
