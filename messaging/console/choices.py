"""Choices that several forms of the messaging pages offer."""

from phone_numbers.models import PhoneNumber
from tenants.console.frame import Visit

MOST_CHOICES = 200


def sending_numbers(visit: Visit) -> list[tuple[str, str]]:
    """The numbers that can send, newest first."""
    rows = PhoneNumber.objects.for_tenant(visit.tenant.id).filter(
        environment=visit.environment, connection_state=PhoneNumber.State.CONNECTED
    )
    names = rows.order_by("-id").values_list("phone_number_id", "display_phone_number", "verified_name")
    return [
        (number, " ".join(filter(None, (shown or number, name))))
        for number, shown, name in names[:MOST_CHOICES]
    ]
