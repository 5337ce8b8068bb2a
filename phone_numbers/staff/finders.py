"""Accounts and numbers in the staff's search, and their lines on a tenant's page."""

import re
from collections.abc import Iterator

from django.db.models import Q

from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant
from tenants.staff.dialogs import change_url
from tenants.staff.lookup import Hit, Line, register_finder, register_lines

_NUMBER = re.compile(r"\+?[0-9][0-9\s().-]{3,30}")


@register_finder("numbers.view_phonenumber")
def _numbers(text: str) -> Iterator[Hit]:
    if not _NUMBER.fullmatch(text):
        return
    digits = "".join(filter(str.isdecimal, text))
    named = Q(digits=digits) | Q(phone_number_id=digits) | Q(account__waba_id=digits)
    for number in PhoneNumber.objects.filter(named).select_related("tenant").order_by("-id")[:10]:
        title = number.display_phone_number or number.phone_number_id
        note = f"{number.tenant.name}, {number.environment}, {number.connection_state}"
        yield Hit("Number", title, note, change_url(PhoneNumber, number.pk))


@register_finder("numbers.view_businessaccount")
def _accounts(text: str) -> Iterator[Hit]:
    for account in BusinessAccount.objects.filter(waba_id=text).select_related("tenant"):
        note = f"{account.tenant.name}, {account.environment}"
        yield Hit(
            "Business account", account.name or account.waba_id, note, change_url(BusinessAccount, account.pk)
        )


@register_lines("numbers.view_phonenumber")
def _lines(tenant: Tenant) -> Iterator[Line]:
    for number in PhoneNumber.objects.for_tenant(tenant.id).order_by("-id")[:20]:
        reason = f": {number.connection_detail}" if number.connection_detail else ""
        shown = number.display_phone_number or number.phone_number_id
        text = f"{shown} ({number.environment}, {number.connection_state}{reason})"
        yield Line("Number", text, change_url(PhoneNumber, number.pk))
