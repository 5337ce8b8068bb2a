"""No text of a tenant or a customer becomes a formula in a spreadsheet, and every text is restored exactly."""

import pytest

from gateway.csv_cells import as_text, from_text


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\nAsha",
        " =1+1",
        "  \t=1",
        "\u00a0=1",
        "\u3000@x",
        "＝1+1",
    ],
)
def test_what_could_be_a_formula_is_a_text(text: str) -> None:
    assert as_text(text) == f"'{text}"
    assert from_text(as_text(text)) == text


@pytest.mark.parametrize("text", ["", " ", "Asha", " Asha", "a=1", "'quoted'", "1-2", "आशा"])
def test_other_texts_stay(text: str) -> None:
    assert as_text(text) == text
    assert from_text(text) == text
