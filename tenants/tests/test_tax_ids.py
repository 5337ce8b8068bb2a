"""GSTIN and PAN: every published form is parsed, old state codes are known, and no text causes a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import luhn

from tenants.signup import tax_ids

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def with_check(fourteen: str) -> str:
    return fourteen + luhn.calc_check_digit(fourteen, ALPHABET)


@pytest.mark.parametrize("text", ["29AAACI1681G1ZL", " 29 aaaci1681g1zl\n", "29-AAACI-1681G-1ZL"])
def test_a_gstin_names_state_pan_and_holder(text: str) -> None:
    tax = tax_ids.parse(text)
    assert (tax.kind, tax.number) == ("gstin", "29AAACI1681G1ZL")
    assert (tax.pan, tax.state_code, tax.holder_letter, tax.holder) == ("AAACI1681G", "29", "C", "Company")
    assert not tax.unusual_form


def test_a_pan_has_no_state() -> None:
    tax = tax_ids.parse("aapfu0939f")
    assert (tax.kind, tax.number, tax.pan, tax.state_code) == ("pan", "AAPFU0939F", "AAPFU0939F", None)


@pytest.mark.parametrize("state", ["38", "97", "01"])
def test_every_state_is_known(state: str) -> None:
    assert tax_ids.parse(with_check(f"{state}AAACI1681G1Z")).state_code == state


@pytest.mark.parametrize(("old", "new"), [("25", "26"), ("28", "37")])
def test_codes_of_former_states_count_as_their_successors(old: str, new: str) -> None:
    assert tax_ids.parse(with_check(f"{old}AAACI1681G1Z")).state_code == new


@pytest.mark.parametrize("fourteen", ["29AAACI1681G1D", "29AAACI1681G1C", "07DELH08881E1D", "0717USA00012UN"])
def test_forms_of_deductors_and_un_bodies_pass_with_a_mark(fourteen: str) -> None:
    assert tax_ids.parse(with_check(fourteen)).unusual_form


@pytest.mark.parametrize(
    "text",
    [
        *("", "29AAACI1681G1Z", "29AAACI1681G1ZX", "39AAACI1681G1Z0", "00AAACI1681G1Z0", "29AAAXI1681G1ZL"),
        *("AAAXI1681G", "AAACI0000G", "1234567890", "２９AAACI1681G1ZL", "29AAACI1681G0ZK"),
    ],
)
def test_what_is_no_tax_id_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(tax_ids.InvalidTaxIdError, match=r"\w+ \w+"):
        tax_ids.parse(text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("AAACI0000G", "begin at 0001"), ("AAAXI1681G", "fourth letter"), ("1234567890", "five letters")],
)
def test_the_part_of_a_pan_that_is_wrong_is_named(text: str, wrong: str) -> None:
    with pytest.raises(tax_ids.InvalidTaxIdError, match=wrong):
        tax_ids.parse(text)


@given(st.text(max_size=20) | st.text(ALPHABET, min_size=10, max_size=15))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        tax = tax_ids.parse(text)
    except tax_ids.InvalidTaxIdError:
        return
    assert tax.number.isascii()
    assert len(tax.number) in {10, 15}


@given(st.integers(0, 14), st.sampled_from(ALPHABET))
def test_one_wrong_character_is_noticed(position: int, character: str) -> None:
    right = "29AAACI1681G1ZL"
    wrong = right[:position] + character + right[position + 1 :]
    if wrong != right:
        with pytest.raises(tax_ids.InvalidTaxIdError):
            tax_ids.parse(wrong)
