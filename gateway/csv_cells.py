"""Cells of CSV files that people open in a spreadsheet."""

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_ALWAYS = ("\t", "\r", "\n")
"""A spreadsheet may take these away, and read what follows as a new cell."""


def as_text(value: str) -> str:
    """A text that a spreadsheet does not take for a formula: one that could be gets an apostrophe before it."""
    return f"'{value}" if _may_be_formula(value) else value


def from_text(cell: str) -> str:
    """A cell as it was before `as_text`."""
    return cell[1:] if cell.startswith("'") and _may_be_formula(cell[1:]) else cell


def _may_be_formula(text: str) -> bool:
    """Whether a text begins as a formula does. Spreadsheets pass over blanks before one."""
    return text.startswith(_ALWAYS) or text.lstrip().startswith(_FORMULAS)
