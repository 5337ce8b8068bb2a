"""The table of states in docs/numbers.md matches `connection_of`."""

from itertools import product
from pathlib import Path

from phone_numbers.connection.state import ConnectionFacts, connection_of

DOCS = Path(__file__).resolve().parents[2] / "docs" / "numbers.md"
HEADER = "| taken away | token works | subscribed | registered | endpoint verified | ever connected | state | detail |"
ANY = "-"


def table() -> list[list[str]]:
    _, _, after = DOCS.read_text().partition(HEADER)
    lines = after.strip().splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in lines[: lines.index("")]]


def test_the_table_of_states_is_the_function() -> None:
    rows = table()
    used = set()
    for taken, *flags in product(("no", "account_removed", "account_restricted"), *[("yes", "no")] * 5):
        cells = [taken, *flags]
        index, row = next(
            (index, row)
            for index, row in enumerate(rows)
            if all(said in {ANY, cell} for said, cell in zip(row, cells, strict=False))
        )
        used.add(index)
        values = [flag == "yes" for flag in flags]
        found = connection_of(ConnectionFacts(None if taken == "no" else taken, *values))
        assert (found.state, found.detail) == (row[6], None if row[7] == ANY else row[7]), cells
    assert used == set(range(len(rows)))
