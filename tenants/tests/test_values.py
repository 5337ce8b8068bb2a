"""Values in the form in which pages show them."""

import pytest

from tenants.audit_labels import action_words
from tenants.labels import milliseconds, phone_number


@pytest.mark.parametrize(
    ("duration", "shown"),
    [(0, "< 1 ms"), (0.04, "< 1 ms"), (1, "1 ms"), (1.0, "1.0 ms"), (12.34, "12.3 ms"), (1204, "1,204 ms")],
)
def test_a_duration_has_its_unit_and_is_never_nothing(duration: float, shown: str) -> None:
    assert milliseconds(duration) == shown


def test_only_bare_digits_get_the_plus_of_a_phone_number() -> None:
    names = ["919812345678", "+91 98123 45678", "IN.ExAmPlE123", ""]
    assert [phone_number(name) for name in names] == ["+919812345678", "+91 98123 45678", "IN.ExAmPlE123", ""]


def test_an_action_that_the_code_no_longer_has_is_spelled_out() -> None:
    assert action_words("cell.move_tenant") == "Cell move tenant"
