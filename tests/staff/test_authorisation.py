"""Every page of the staff admin, with each role of staff and with visitors who are not staff.

Each role includes the lower ones, so it is enough to request each page with the lowest permitted role and with the role
below it. Finance is outside of this order: it opens the pages of support and those of `OF_FINANCE`. A new page without
a row in `PAGES` or a kind in `OF_A_MODEL` fails.
"""

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.http import HttpResponse
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import Settings

from console.tests.test_authorisation import world as world
from tenants.models import Tenant, User
from tenants.staff import roles
from tests.api_contract.authorisation import World
from tests.browsers import staff_pages
from tests.staff.test_accessibility import a_row_of_every_table
from webhooks.models import Message

pytestmark = pytest.mark.django_db

ROLES = ("visitor", "customer", "staff", "support", "reviewer", "superuser")
"""The roles from the lowest to the highest. `staff` has no group."""
NOBODY = "nobody"
OF_DJANGO = {"add", "change", "delete", "module", "view", "view_or_change"}
_MONEY = {
    "credit": "billing.add_creditnote",
    "decide": "billing.change_staffact",
    "payment": "billing.add_paymentattempt",
    "refund": "billing.add_refund",
}
ACTS = {
    "billing.billingprofile switch": "billing.change_billingprofile",
    **{
        f"billing.{model} {act}": permission
        for model in ("invoice", "paymentattempt", "staffact")
        for act, permission in _MONEY.items()
    },
    "numbers.businessaccount release": "numbers.delete_businessaccount",
    "numbers.phonenumber release": "numbers.delete_phonenumber",
    "tenants.apikey revoke": "tenants.revoke_apikey",
    "tenants.apikey rotate": "tenants.add_platformapp",
    "tenants.platformapp create_key": "tenants.add_platformapp",
    "tenants.tenant decide": "tenants.decide_tenant",
    "tenants.tenant look": "tenants.view_tenant",
    "tenants.tenant note": "tenants.add_tenantnote",
    "tenants.user remove_factor": "tenants.change_user",
    "webhooks.delivery operate": "webhooks.add_delivery",
    "webhooks.endpoint operate": "webhooks.change_endpoint",
}
"""The permission of each act of staff that is not one of Django's."""

OF_A_MODEL = {
    "changelist": "support",
    "change": "support",
    "history": "support",
    "add": NOBODY,
    "delete": NOBODY,
}
"""The lowest permitted role for each kind of page that every model has."""
PAGES = {
    "index": "staff",
    "password_change": "staff",
    "password_change_done": "staff",
    "jsi18n": "staff",
    "search": "staff",
    "view_on_site": NOBODY,
    "staff_search": "staff",
    "app_list": "support",
    "autocomplete": "support",
    "tenants_platformapp_add": "superuser",
    "tenants_emaildomainrule_add": "superuser",
    "tenants_emaildomainrule_delete": "superuser",
    "tenants_user_add": "superuser",
    "tenants_user_remove_second_factor": "superuser",
    "tenants_tenant_approve": "reviewer",
    "tenants_tenant_reject": "reviewer",
    "tenants_tenant_suspend": "reviewer",
    "tenants_tenant_reinstate": "reviewer",
    "tenants_tenant_reinstate_and_approve": "reviewer",
    "tenants_tenant_see_as": "support",
    "tenants_tenant_add_note": "support",
    "staff_message": "support",
    "tenants_apikey_revoke_key": "reviewer",
    "tenants_apikey_rotate_key": "superuser",
    "tenants_platformapp_new_key": "superuser",
    "webhooks_endpoint_verify": "superuser",
    "webhooks_endpoint_resume": "superuser",
    "webhooks_endpoint_recover": "superuser",
    "webhooks_delivery_send_again": "superuser",
    "numbers_businessaccount_release": "superuser",
    "numbers_phonenumber_release": "superuser",
    "billing_billingprofile_switch_sez": "superuser",
    "billing_billingprofile_set_country": "superuser",
    "billing_planversion_add": "superuser",
    "billing_invoice_accounting": "support",
    "billing_invoice_month": "support",
    "billing_invoice_ledger": "support",
    "billing_invoice_pdf": "support",
    "billing_invoice_close": "superuser",
    "billing_staffact_approve": "superuser",
    "billing_staffact_decline": "superuser",
    "billing_invoice_einvoices": "support",
    "billing_invoice_cancel": "superuser",
    "billing_invoice_send_again": "superuser",
    "billing_invoice_write_off": "superuser",
    "billing_paymentattempt_returned": "superuser",
    "billing_invoice_credit": "superuser",
    "billing_invoice_replace": "superuser",
    "billing_invoice_payment": "superuser",
    "billing_invoice_tds": "superuser",
    "billing_paymentattempt_refund": "superuser",
}
"""The lowest permitted role for all other pages, and for pages that differ from their kind."""
OF_FINANCE = {
    "billing_invoice_close",
    "billing_staffact_approve",
    "billing_staffact_decline",
    "billing_invoice_cancel",
    "billing_invoice_send_again",
    "billing_invoice_write_off",
    "billing_paymentattempt_returned",
    "billing_invoice_credit",
    "billing_invoice_replace",
    "billing_invoice_payment",
    "billing_invoice_tds",
    "billing_paymentattempt_refund",
}
"""The pages that finance opens and support does not."""
IN_AND_OUT = {"login", "logout", "support_end"}
"""Pages that respond differently to each visitor. `tenants/tests/test_staff_admin.py` and `test_support_desk.py` test
them."""


def registered_pages() -> set[str]:
    """Return the names of all pages below /admin/."""
    return {name for name in _walk(get_resolver(), "") if name is not None}


def _walk(resolver: Any, prefix: str) -> Iterator[str | None]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, path)
        elif path.startswith("admin/"):
            yield pattern.name


def of_models() -> dict[str, str]:
    """Return the lowest permitted role for the pages that every model has, by the name of the page."""
    models = [model._meta for model in staff_pages()]
    return {f"{m.app_label}_{m.model_name}_{kind}": role for m in models for kind, role in OF_A_MODEL.items()}


def test_every_page_has_a_row_and_every_row_a_page() -> None:
    assert registered_pages() == of_models().keys() | PAGES.keys() | IN_AND_OUT


def test_each_act_needs_its_own_permission_and_no_other_gives_it() -> None:
    """The groups have several permissions each, so pages alone do not show which one opens an act."""
    permissions = {
        f"{each.content_type.app_label}.{each.codename}"
        for each in Permission.objects.select_related("content_type")
    }
    found: dict[str, set[str]] = {}
    for model, page in admin.site._registry.items():
        for name in dir(page):
            act = re.fullmatch(r"has_(\w+)_permission", name)
            if act and act[1] not in OF_DJANGO:
                found[f"{model._meta.label_lower} {act[1]}"] = {
                    permission for permission in permissions if getattr(page, name)(_with_only(permission))
                }
    assert found == {act: {permission} for act, permission in ACTS.items()}


def _with_only(permission: str) -> Any:
    """A request of a staff member with one permission."""
    return SimpleNamespace(user=SimpleNamespace(has_perm=lambda asked, *_: asked == permission))


def test_roles_are_nested() -> None:
    support, reviewer = (set(Group.objects.get(name=name).permissions.all()) for name in roles_by_name())
    assert support < reviewer
    changing = {one.codename for one in support if not one.codename.startswith("view_")}
    assert changing == {"add_tenantnote"}


def roles_by_name() -> tuple[str, str]:
    return roles.SUPPORT, roles.REVIEWER


def browser_of(role: str, tenant: Tenant) -> Client:
    client = Client()
    if role == "visitor":
        return client
    is_staff = role != "customer"
    person = User.objects.create_user(
        f"{role}@people.example",
        tenant=None if is_staff else tenant,
        is_staff=is_staff,
        is_superuser=role == "superuser",
    )
    if role in (*roles_by_name(), roles.FINANCE):
        person.groups.add(Group.objects.get(name=role))
    client.force_login(person)
    return client


def test_each_page_opens_for_its_least_role_and_for_none_below(world: World, settings: Settings) -> None:
    settings.BILLING_ENABLED = True
    a_row_of_every_table(world)
    browsers = {role: browser_of(role, world.tenant) for role in ROLES}
    wrong = []
    for name, least in (of_models() | PAGES).items():
        path = path_of(name)
        first = ROLES.index(least) if least != NOBODY else len(ROLES)
        for role in {"visitor", "customer", *ROLES[first - 1 : first + 1]}:
            allowed = ROLES.index(role) >= first
            answer = browsers[role].get(path)
            if opens(answer) != allowed:
                wrong.append(f"{name} for {role}: {answer.status_code}")
            if not allowed and opens(browsers[role].post(path)):
                wrong.append(f"POST {name} for {role} opens")
    of_finance = browser_of(roles.FINANCE, world.tenant)
    above_support = {name for name, least in PAGES.items() if least in {"reviewer", "superuser"}}
    assert {name for name in above_support if opens(of_finance.get(path_of(name)))} == OF_FINANCE
    for name in above_support - OF_FINANCE:
        assert not opens(of_finance.post(path_of(name))), name
    assert not wrong, "\n".join(wrong)


def opens(answer: HttpResponse) -> bool:
    """Return whether a response shows the page, rather than a rejection or a redirect to the log-in."""
    if answer.status_code == 302:
        return "login" not in answer["Location"]
    return answer.status_code == 200


def _message_of_the_world() -> dict[str, str]:
    row = Message.objects.get()
    return {"tenant_id": row.tenant_id, "environment": row.environment, "message_id": row.key}


def path_of(name: str) -> str:
    """Return the path of a page, for the newest row of its model."""
    special = {
        "staff_message": _message_of_the_world(),
        "app_list": {"app_label": "tenants"},
        "view_on_site": {"content_type_id": 1, "object_id": 1},
        "billing_invoice_month": {"month": "2026-11"},
        "billing_invoice_ledger": {"month": "2026-11"},
        "billing_invoice_close": {"month": "2026-11"},
    }
    if name == "autocomplete":
        return reverse("admin:autocomplete") + "?app_label=tenants&model_name=user&field_name=tenant&term=a"
    if name in special:
        return reverse(f"admin:{name}", kwargs=special[name])
    for model in staff_pages():
        names = model._meta
        prefix = f"{names.app_label}_{names.model_name}_"
        if name.startswith(prefix) and not name.endswith(
            ("_changelist", "_add", "_accounting", "_einvoices")
        ):
            row = model._default_manager.order_by("-pk").first()
            assert row is not None, f"no row of {model.__name__}"
            return reverse(f"admin:{name}", args=[row.pk])
    return reverse(f"admin:{name}")
