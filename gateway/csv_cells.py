"""Cells of CSV files that users open in a spreadsheet."""

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_ALWAYS = ("\t", "\r", "\n")
"""Characters after which a spreadsheet may read the rest as a new cell."""


def as_text(value: str) -> str:
    """A text that a spreadsheet does not read as a formula. An apostrophe goes before a possible formula."""
    return f"'{value}" if _may_be_formula(value) else value


def from_text(cell: str) -> str:
    """The original text of a cell that `as_text` made."""
    return cell[1:] if cell.startswith("'") and _may_be_formula(cell[1:]) else cell


def _may_be_formula(text: str) -> bool:
    """Whether a text begins like a formula. Spreadsheets skip blanks before a formula."""
    return text.startswith(_ALWAYS) or text.lstrip().startswith(_FORMULAS)
