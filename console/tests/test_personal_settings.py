"""A user's own settings: name, time zone and theme, on the console's pages and the staff pages."""

import pytest
from django.test import Client

from console.personal_settings import PersonForm
from tenants.models import ApiKey, Tenant, User
from tests.browsers import logged_in, text
from tests.one_of_each import one_of_each

pytestmark = pytest.mark.django_db

FORM = {"name": "Asha Rao", "time_zone": "Asia/Dubai", "theme": "dark"}


def test_name_zone_and_theme_are_the_persons_own(tenant: Tenant, browser: Client) -> None:
    colleague = logged_in(User.objects.create_user("ravi@traders.example", tenant=tenant))
    key = one_of_each(tenant).key.row
    ApiKey.objects.filter(pk=key.pk).update(created_at="2026-11-21T18:30:00Z")
    assert browser.post("/you", FORM).status_code == 302
    assert "21 Nov 2026, 22:30 +04" in text(browser, "/console/api-keys")
    assert "22 Nov 2026, 00:00 IST" in text(colleague, "/console/api-keys")
    assert '<html lang="en" data-theme="dark">' in text(browser, "/console")
    assert "data-theme" not in text(colleague, "/console")
    assert "Asha Rao" in text(colleague, "/console/team")


def test_what_nobody_can_choose_is_refused(browser: Client) -> None:
    for wrong in ({"time_zone": "Mars/Base"}, {"time_zone": ""}, {"theme": "pink"}, {"name": "x" * 101}):
        assert browser.post("/you", FORM | wrong).status_code == 400
    assert browser.post("/you", FORM | {"role": "owner", "is_staff": "on"}).status_code == 302
    assert not User.objects.get(name="Asha Rao").is_staff


def test_staff_read_times_in_their_zone_and_strangers_log_in(staff: User, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(created_at="2026-11-21T18:30:00Z")
    client = logged_in(staff)
    page = f"/admin/tenants/tenant/{tenant.pk}/change/"
    assert "22 Nov 2026, 00:00 IST" in text(client, page)
    client.post("/you", FORM | {"time_zone": "UTC"})
    assert "21 Nov 2026, 18:30 UTC" in text(client, page)
    assert Client().get("/you")["Location"].startswith("/login?next=")


def test_a_role_that_changes_meanwhile_stays_changed(
    tenant: Tenant, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean(_: PersonForm) -> None:
        User.objects.filter(tenant=tenant).update(role="read_only")

    monkeypatch.setattr(PersonForm, "clean", clean)
    assert browser.post("/you", FORM).status_code == 302
    saved = User.objects.get(tenant=tenant)
    assert (saved.time_zone, saved.role) == (FORM["time_zone"], "read_only")
