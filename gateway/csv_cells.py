"""Cells of CSV files that users open in a spreadsheet."""

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_ALWAYS = ("\t", "\r", "\n")
"""Characters after which a spreadsheet may read the rest as a new cell."""


def as_text(value: str) -> str:
    """A text that a spreadsheet does not read as a formula. A possible formula gets an apostrophe before it."""
    return f"'{value}" if _may_be_formula(value) else value


def from_text(cell: str) -> str:
    """The text of a cell before `as_text`."""
    return cell[1:] if cell.startswith("'") and _may_be_formula(cell[1:]) else cell


def _may_be_formula(text: str) -> bool:
    """Whether a text begins like a formula. Spreadsheets skip blanks before a formula."""
    return text.startswith(_ALWAYS) or text.lstrip().startswith(_FORMULAS)
