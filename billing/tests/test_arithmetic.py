"""The arithmetic of prices, taxes, amounts in words and invoice numbers, with examples and with random amounts."""

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.admin.fields import RupeesField
from billing.plan import Terms, charge_for
from billing.pricing import gst
from billing.pricing.money import in_words, rounded_share, rupees
from billing.pricing.periods import Period, financial_year
from tenants.signup.tax_ids import STATES

moments = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("code", "half"),
    [
        *((code, "UTGST") for code in ("04", "26", "31", "35", "38", "97")),
        *((code, "SGST") for code in ("01", "07", "34")),
    ],
)
def test_the_taxes_of_a_document_are_named(code: str, half: str) -> None:
    """Delhi, Jammu and Kashmir and Puducherry have legislatures, so they have SGST."""
    rows = gst.Taxes(45, 45, 0, place_code=code, percent=5).rows()
    assert [(row.type, row.percent, row.amount_paise) for row in rows] == [("CGST", 2.5, 45), (half, 2.5, 45)]
    [whole] = gst.Taxes(0, 0, 90, place_code=code, percent=18).rows()
    assert (whole.type, str(whole.percent), whole.amount_paise) == ("IGST", "18", 90)
    assert gst.Taxes(0, 0, 0, place_code=code, percent=18).rows() == []


@pytest.mark.parametrize(
    ("numbers", "subtotal", "tax", "half", "total"),
    [
        (0, 0, 0, 0, 0),
        (1, 50000, 9000, 4500, 59000),
        (2, 75000, 13500, 6750, 88500),
        (3, 100000, 18000, 9000, 118000),
        (49, 1250000, 225000, 112500, 1475000),
        (50, 1275000, 229500, 114750, 1504500),
    ],
)
def test_the_price_table(numbers: int, subtotal: int, tax: int, half: int, total: int) -> None:
    charge = charge_for(numbers, Terms())
    assert (charge.subtotal_paise, charge.tax_paise, charge.half_tax_paise, charge.total_paise) == (
        subtotal,
        tax,
        half,
        total,
    )


@given(st.integers(0, 100_000), st.sampled_from(["intra_state", "inter_state"]))
def test_taxes_are_exact_equal_halves_and_the_same_in_total(numbers: int, kind: gst.SupplyType) -> None:
    charge = charge_for(numbers, Terms())
    taxes = charge.taxes(gst.Supply("29", kind))
    assert taxes.cgst_paise == taxes.sgst_paise
    assert taxes.total_paise == charge.tax_paise
    assert taxes.total_paise * 100 == charge.subtotal_paise * 18
    assert sum(line.amount_paise for line in charge.lines) == charge.subtotal_paise
    assert sum(line.quantity for line in charge.lines) == numbers
    assert sum(row.amount_paise for row in taxes.rows()) == charge.tax_paise


@given(st.integers(0, 10**12), st.sampled_from(["intra_state", "inter_state"]))
def test_the_tax_of_a_credit_note_is_split_like_its_invoices(paise: int, kind: gst.SupplyType) -> None:
    invoiced = charge_for(1, Terms()).taxes(gst.Supply("29", kind))
    credited = invoiced.like(paise)
    assert credited.total_paise == paise
    assert credited.cgst_paise - credited.sgst_paise in {0, 1}
    assert (credited.igst_paise == 0) is (kind == "intra_state" or paise == 0)


@given(st.integers(0, 10**15), st.integers(1, 1000), st.integers(1, 1000))
def test_shares_round_half_up_as_decimal_does(amount: int, numerator: int, denominator: int) -> None:
    exact = Decimal(amount * numerator) / Decimal(denominator)
    if amount * numerator < 10**18:
        assert rounded_share(amount, numerator, denominator) == int(exact.quantize(Decimal(1), ROUND_HALF_UP))


@given(st.integers(0, 10**13))
def test_rupees_can_be_read_back(amount: int) -> None:
    assert Decimal(rupees(amount).replace("₹", "").replace(",", "")) * 100 == amount


@given(st.integers(1, 10**12 - 1))
def test_an_entered_amount_is_taken_to_the_paisa(amount: int) -> None:
    assert RupeesField("Amount").clean(f"{amount // 100}.{amount % 100:02}") == amount


@pytest.mark.parametrize(
    ("paise", "text"),
    [(0, "₹0.00"), (59000, "₹590.00"), (118000, "₹1,180.00"), (123456750, "₹12,34,567.50"), (-5, "-₹0.05")],
)
def test_rupees_are_grouped_the_indian_way(paise: int, text: str) -> None:
    assert rupees(paise) == text


@pytest.mark.parametrize(
    ("paise", "text"),
    [
        (59000, "Rupees five hundred and ninety only"),
        (88500, "Rupees eight hundred and eighty five only"),
        (118000, "Rupees one thousand one hundred and eighty only"),
        (6750, "Rupees sixty seven and paise fifty only"),
        (
            123456750,
            "Rupees twelve lakh thirty four thousand five hundred and sixty seven and paise fifty only",
        ),
        (100_000_000_00, "Rupees ten crore only"),
    ],
)
def test_words_are_of_rupees_not_of_paise(paise: int, text: str) -> None:
    assert in_words(paise) == text


@pytest.mark.parametrize(
    ("moment", "year"),
    [
        (datetime(2027, 3, 31, 18, 29, 59, tzinfo=UTC), "2627"),
        (datetime(2027, 3, 31, 18, 30, tzinfo=UTC), "2728"),
        (datetime(2026, 12, 1, tzinfo=UTC), "2627"),
        (datetime(2099, 5, 1, tzinfo=UTC), "9900"),
    ],
)
def test_the_financial_year_turns_at_midnight_of_the_first_of_april_in_india(
    moment: datetime, year: str
) -> None:
    assert financial_year(moment) == year


def test_months_begin_at_midnight_in_india() -> None:
    assert Period.of(datetime(2026, 10, 31, 18, 30, tzinfo=UTC)) == Period(2026, 11)
    assert Period(2026, 11).start == datetime(2026, 10, 31, 18, 30, tzinfo=UTC)
    assert str(Period(2026, 12).next) == "2027-01"
    assert Period(2027, 1).previous == Period.parse("2026-12")


@given(moments)
def test_every_moment_is_in_exactly_one_month(moment: datetime) -> None:
    period = Period.of(moment)
    assert period.start <= moment < period.end
    assert period.next.previous == period == period.previous.next
    assert period.end == period.next.start
    assert Period.of(period.end - timedelta(microseconds=1)) == period


@given(
    st.sampled_from(sorted(STATES)),
    st.none() | st.sampled_from(sorted(STATES)),
    st.none() | st.sampled_from(sorted(STATES)),
    st.booleans(),
)
def test_place_of_supply(seller: str, gstin: str | None, address: str | None, is_sez: bool) -> None:
    supply = gst.supply(seller_state=seller, gstin_state=gstin, address_state=address, is_sez=is_sez)
    assert supply.state_code == (gstin or address or seller)
    assert (supply.kind == "intra_state") == (supply.state_code == seller and not is_sez)
    assert supply.place == f"{supply.state_code}-{STATES[supply.state_code]}"


def test_document_numbers_fit_the_rule() -> None:
    assert gst.document_number("WG", "2627", 123) == "WG/2627/000123"
    assert len(gst.document_number("WGCN", "2627", 999_999)) == 16
    with pytest.raises(ValueError):
        gst.document_number("TOOLONG", "2627", 1)
    with pytest.raises(ValueError):
        gst.document_number("W G", "2627", 1)
