"""Numbers in the console's search."""

import re
from collections.abc import Iterator

from django.db.models import Q
from django.urls import reverse

from gateway.roles import Area
from phone_numbers.models import PhoneNumber
from tenants.console.frame import Visit
from tenants.console.search import Hit, finds

_NUMBER = re.compile(r"\+?[0-9][0-9\s().-]{3,30}")


@finds(Area.INTEGRATION)
def _numbers(visit: Visit, text: str) -> Iterator[Hit]:
    if not _NUMBER.fullmatch(text):
        return
    digits = "".join(filter(str.isdecimal, text))
    own = PhoneNumber.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    for number in own.filter(Q(digits=digits) | Q(phone_number_id=digits) | Q(account__waba_id=digits)):
        title = number.display_phone_number or number.phone_number_id
        yield Hit("Number", title, reverse("console_number", args=[number.phone_number_id]))
