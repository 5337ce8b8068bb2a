"""Cells of CSV files that people open in a spreadsheet."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def as_text(value: str) -> str:
    """A text that a spreadsheet does not take for a formula: one that could be gets an apostrophe before it."""
    return f"'{value}" if value.startswith(_FORMULAS) else value


def from_text(cell: str) -> str:
    """A cell as it was before `as_text`."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULAS) else cell
