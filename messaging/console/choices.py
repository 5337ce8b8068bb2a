"""Numbers and templates that several messaging pages name or offer in a form."""

from collections.abc import Iterable

from messaging.message_templates.models import MessageTemplate, MessageTemplateQuerySet
from phone_numbers.models import PhoneNumber
from tenants.console.frame import Visit

MOST_CHOICES = 200
MOST_TEMPLATES = 500


def shown_numbers(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """Phone numbers as people read them, by `phone_number_id`; those that the tenant has no more are missing."""
    rows = PhoneNumber.objects.for_tenant(visit.tenant.id).filter(
        environment=visit.environment, phone_number_id__in={id_ for id_ in ids if id_}
    )
    names = rows.values_list("phone_number_id", "display_phone_number")
    return {number: shown or number for number, shown in names}


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


def approved_templates(visit: Visit) -> MessageTemplateQuerySet:
    """The templates that can be sent."""
    rows = MessageTemplate.objects.for_tenant(visit.tenant.id)
    return rows.filter(environment=visit.environment, status="APPROVED")


def template_choices(visit: Visit) -> list[tuple[str, str]]:
    """The templates that can be sent, by name."""
    rows = approved_templates(visit).order_by("name", "language", "id").values_list("id", "name", "language")
    return [(str(id_), f"{name} ({language})") for id_, name, language in rows[:MOST_TEMPLATES]]
