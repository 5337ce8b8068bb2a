"""The nearest known word to a mistyped one, for error messages that repair themselves."""

from collections.abc import Iterable
from difflib import get_close_matches

SHORTEST_LIKENESS = 0.6
LONGEST_COMPARED = 100
"""Longer texts are no typing mistakes of a name, and comparing them would cost much."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like a word, or None when none is like it.

    In words of several parts such as `message.status` the last part decides where the others are known: what all
    share makes none of them likely.
    """
    if len(word) > LONGEST_COMPARED:
        return None
    group, dot, _ = word.lower().rpartition(".")
    words = list(known)
    shared = group + dot
    peers = [name.removeprefix(shared) for name in words if dot and name.startswith(shared)]
    if peers:
        found = get_close_matches(word.lower().removeprefix(shared), peers, n=1, cutoff=SHORTEST_LIKENESS)
        return shared + found[0] if found else None
    found = get_close_matches(word.lower(), words, n=1, cutoff=SHORTEST_LIKENESS)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?` for the nearest known word, otherwise nothing."""
    found = nearest(word, known)
    return f" Did you mean {found}?" if found else ""
