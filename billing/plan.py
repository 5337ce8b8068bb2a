"""The plan: a flat monthly price per number, with GST added (specification 1).

The plan's terms are price, included numbers, GST rate and days to pay. Each version of the terms applies from a month
of service on. General versions have a GST rate. A tenant's own version, agreed with staff, uses the general rate.
`Terms()` are the first terms. A snapshot stores the terms of its month, so a new version never changes past months.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from billing.models import PlanVersion
from billing.pricing import gst
from billing.pricing.money import CURRENCY, rounded_share
from billing.pricing.periods import Period
from gateway.api.errors import InvalidRequest
from tenants import audit

CODE = "per_number_monthly"


@dataclass(frozen=True, slots=True)
class Terms:
    """Prices of a month in paise without GST, and the days to pay."""

    first_number_paise: int = 50_000
    additional_number_paise: int = 25_000
    included_numbers: int = 1
    """How many numbers the base price includes."""
    gst_percent: int = 18
    due_days: int = 7
    version: str | None = None
    """The id of the version. None for the first terms."""

    def as_json(self) -> dict[str, Any]:
        """The terms as responses and snapshots have them."""
        return {"code": CODE, "currency": CURRENCY, **asdict(self), "tax_inclusive": False}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """The terms from a snapshot. Fields missing in old snapshots get their defaults, which applied at that time."""
        return cls(**{one.name: kept[one.name] for one in fields(cls) if one.name in kept})


def terms_for(tenant_id: UUID | None, period: Period) -> Terms:
    """The terms of a tenant for a month: its own version, else the general version, else the first terms.

    Without a tenant, the general terms.
    """
    month = str(period)
    in_force = PlanVersion.objects.filter(Q(ends="") | Q(ends__gte=month), starts__lte=month)
    newest = in_force.order_by("-starts", "-id")
    general, own = newest.filter(tenant=None).first(), newest.filter(tenant=tenant_id).first()
    version = own or general
    if version is None:
        return Terms()
    rate = general.gst_percent if general else None
    return Terms(
        first_number_paise=version.first_number_paise,
        additional_number_paise=version.additional_number_paise,
        included_numbers=version.included_numbers,
        gst_percent=Terms().gst_percent if rate is None else rate,
        due_days=version.due_days,
        version=str(version.pk),
    )


def require_valid(version: PlanVersion, at: datetime) -> None:
    """Raise InvalidRequest for a version that must not be stored.

    Its first month must not be over, and its last month must not be before the first. The general version needs a GST
    rate, which must be one of `gst.RATES`. A tenant's own version must have none.
    """
    if Period.parse(version.starts) < Period.of(at):
        raise InvalidRequest.of(starts="Past months were already billed. Begin with a later month.")
    if version.ends and version.ends < version.starts:
        raise InvalidRequest.of(ends="Must not be before the first month.")
    if (version.gst_percent is None) != (version.tenant_id is not None):
        raise InvalidRequest.of(
            gst_percent="Terms of all tenants need a GST rate. Terms of one tenant use that rate."
        )
    if version.gst_percent not in {None, *gst.RATES}:
        raise InvalidRequest.of(gst_percent=f"GST has the rates {', '.join(map(str, gst.RATES))} %.")


def add_version(version: PlanVersion, *, at: datetime, actor_user_id: int | None = None) -> PlanVersion:
    """Store a new version, with an audit entry. Raises InvalidRequest like `require_valid`."""
    require_valid(version, at)
    with transaction.atomic():
        version.created_at, version.created_by = at, actor_user_id
        version.save(force_insert=True)
        names = ("starts", "ends", "first_number_paise", "additional_number_paise", "included_numbers")
        audit.record(
            action="billing.terms",
            target_type="plan_version",
            target_id=version.pk,
            tenant_id=version.tenant_id,
            actor_user_id=actor_user_id,
            details={name: getattr(version, name) for name in (*names, "gst_percent", "due_days", "reason")},
        )
    return version


@dataclass(frozen=True, slots=True)
class ChargeLine:
    """One line of a charge, in paise."""

    description: str
    quantity: int
    unit_paise: int

    @property
    def amount_paise(self) -> int:
        return self.quantity * self.unit_paise


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of a month in paise. `half_tax_paise` is the amount of CGST and of SGST. `tax_paise` is the IGST.

    CGST and SGST are rounded separately, so together they can differ from IGST by one paisa.
    """

    numbers: int
    lines: tuple[ChargeLine, ...]
    terms: Terms

    @property
    def subtotal_paise(self) -> int:
        return sum(line.amount_paise for line in self.lines)

    @property
    def half_tax_paise(self) -> int:
        return rounded_share(self.subtotal_paise, self.terms.gst_percent, 200)

    @property
    def tax_paise(self) -> int:
        return rounded_share(self.subtotal_paise, self.terms.gst_percent, 100)

    @property
    def total_paise(self) -> int:
        return self.subtotal_paise + self.tax_paise

    def taxes(self, supply: gst.Supply) -> gst.Taxes:
        """The taxes of a supply: CGST and SGST within a State, IGST between States and abroad, none if zero-rated."""
        half, whole = self.half_tax_paise, self.tax_paise
        amounts = (0, 0, whole) if supply.kind != "intra_state" else (half, half, 0)
        return gst.Taxes(
            *((0, 0, 0) if supply.zero_rated else amounts), supply.state_code, self.terms.gst_percent
        )


def charge_for(numbers: int, terms: Terms) -> Charge:
    """The charge of a month for a count of active numbers, with full GST. Zero for no numbers."""
    first = "First number" if terms.included_numbers == 1 else f"First {terms.included_numbers} numbers"
    further = max(0, numbers - terms.included_numbers)
    lines = (
        ChargeLine(first, int(numbers > 0), terms.first_number_paise),
        ChargeLine("Further numbers", further, terms.additional_number_paise),
    )
    return Charge(numbers, tuple(line for line in lines if line.amount_paise), terms)
