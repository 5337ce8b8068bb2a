"""Routing table of the notification router: which cell has which account (WABA)."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from gateway.upstream.notifications.normalise import normalise
from gateway.upstream.notifications.split_by_tenant import Splitter


class RoutingTable:
    """The accounts of each cell, as `manage.py cell_routes` writes them: `NAME.accounts` in one directory."""

    def __init__(self, directory: Path, cells: Mapping[str, str], *, default: str) -> None:
        self._directory, self.urls, self.default = directory, cells, default
        self._cell_of: dict[str, str] = {}
        self._read_at: dict[str, float] = {}
        self.read()

    def read(self) -> None:
        """Read the files that have changed."""
        for cell in self.urls:
            path = self._directory / f"{cell}.accounts"
            changed_at = path.stat().st_mtime if path.exists() else 0.0
            if changed_at != self._read_at.get(cell):
                rest = {waba_id: of for waba_id, of in self._cell_of.items() if of != cell}
                own = path.read_text().split() if changed_at else []
                # A tenant that moved is in both until the former cell has written its part anew: the newer one counts.
                self._cell_of = {**rest, **dict.fromkeys(own, cell)}
                self._read_at[cell] = changed_at

    def cell_of(self, *waba_ids: str | None) -> str:
        """The cell of the first account that is known."""
        return next((self._cell_of[each] for each in waba_ids if each in self._cell_of), self.default)

    def parts(self, body: bytes) -> dict[str, bytes]:
        """What each cell gets of a notification."""
        normalised = normalise(body)
        places = defaultdict(set)
        for change in normalised.changes:
            cell = self.cell_of(change.route.waba_info_id, change.route.entry_id)
            places[cell].add((change.entry, change.change))
        if normalised.error is not None or not places:
            # The default cell keeps what nobody can read; it gets the whole, as the upstream signed it.
            places[self.default] = set()
        if len(places) == 1:
            return dict.fromkeys(places, body)
        splitter = Splitter(body)
        return {cell: splitter.split(own)[0] if own else body for cell, own in places.items()}
