"""The staff admin: access, the queue and its decisions, and pages without secrets."""

import html
import re
from datetime import timedelta
from importlib import import_module
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse

from gateway import ids
from gateway.clock import now
from phone_numbers import leaving
from tenants import audit, mail, platform_apps
from tenants.credentials import api_keys, bearer_tokens, log_in
from tenants.models import (
    ApiKey,
    AuditEntry,
    EmailDomainRule,
    Invitation,
    OutboundMail,
    PlatformApp,
    SignUp,
    Tenant,
    TenantNote,
    User,
)
from tenants.signup import screening, sign_ups
from tenants.staff import approval_admin, roles
from tenants.team import members
from tenants.tests.test_tax_ids import with_check
from tests.browsers import logged_in, staff_pages

pytestmark = pytest.mark.django_db
APPROVED = "2026-11-01T00:00:00Z"


@pytest.fixture
def browser(staff: User) -> Client:
    return logged_in(staff)


def member(role: str) -> Client:
    user = User.objects.create_user(f"{role}@service.example", "a long enough password", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    return logged_in(user)


@pytest.fixture
def waiting() -> Tenant:
    sign_up = SignUp.objects.create(
        email="owner@infosys.com",
        password="pbkdf2_sha256$the-hash-of-a-password",
        company="Infosys Limited",
        website="https://other.in",
        tax_id="29AAACI1681G1ZL",
        tax_id_type="gstin",
        address="44 Electronics City",
        city="Bengaluru",
        state_code="29",
        pin_code="560100",
        phone="+919800000001",
    )
    return sign_ups.confirm(sign_ups.link_for(sign_up).rpartition("/")[2])


def decide(client: Client, tenant: Tenant, action: str, **fields: str) -> Any:
    return client.post(
        f"/admin/tenants/tenant/{tenant.pk}/{action}/",
        {"_form_submitted": "on", **fields},
        headers={"HX-Request": "true"},
    )


def test_only_staff_enter_by_the_consoles_log_in(tenant: Tenant) -> None:
    assert Client().get("/admin/", follow=True).redirect_chain[-1][0].startswith("/login?next=")
    person = User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)
    assert logged_in(person).get("/admin/", follow=True).status_code == 403


def test_a_second_factor_is_demanded_where_the_setting_says_so(staff: User, settings: Any) -> None:
    settings.STAFF_SECOND_FACTOR = True
    client = logged_in(staff)
    assert client.get("/admin/", follow=False).status_code == 302
    assert client.get("/admin/login/")["Location"] == reverse("mfa_index")
    Authenticator.objects.create(user=staff, type="totp", data={"secret": "x"})
    assert client.get("/admin/").status_code == 200


def test_the_queue_is_oldest_first_and_shows_what_to_look_at(browser: Client, waiting: Tenant) -> None:
    younger = Tenant.objects.create(name="Younger")
    page = browser.get("/admin/tenants/tenant/?status__exact=pending_approval").content.decode()
    assert page.index("Infosys Limited") < page.index(younger.name)
    assert "email domain differs from website" in page
    assert "Company" in page
    assert headings(page) == ("Approval queue", "Approval queue |")
    name, title = headings(browser.get("/admin/tenants/tenant/").content.decode())
    assert (name.split()[-1], title) == ("Tenants", "Tenants |")
    detail = browser.get(f"/admin/tenants/tenant/{waiting.pk}/change/").content.decode()
    for evidence in (
        "44 Electronics City",
        "+919800000001",
        "Karnataka",
        "Email is at infosys.com",
        "Signed up",
    ):
        assert evidence in detail
    assert "the-hash-of-a-password" not in detail


def headings(page: str) -> tuple[str, str]:
    """The heading of a list, and the beginning of its page's title."""
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.DOTALL)
    title = re.search(r"<title>\s*(.*? \|)", page, re.DOTALL)
    assert heading
    assert title
    return " ".join(re.sub(r"<[^>]*>|chevron_right", " ", heading[1]).split()), title[1]


@pytest.mark.parametrize("model", ["tenant", "apikey"])
def test_an_address_that_names_no_row_leads_to_the_first_page(browser: Client, model: str) -> None:
    for key in ("abc", ids.uuid7()):
        answer = browser.get(f"/admin/tenants/{model}/{key}/change/", follow=True)
        assert answer.redirect_chain == [("/admin/", 302)]
        assert "doesn’t exist" in answer.content.decode()


def test_the_four_decisions(browser: Client, staff: User, waiting: Tenant) -> None:
    assert "Usual reasons" in browser.get(f"/admin/tenants/tenant/{waiting.pk}/reject/").content.decode()
    assert "Give a reason" in decide(browser, waiting, "reject").content.decode()
    for action, fields, status in [
        ("reject", {"reason": "Not you"}, "rejected"),
        ("approve", {}, "active"),
        ("suspend", {"reason": "abuse", "note": "spam"}, "suspended"),
        ("reinstate", {}, "active"),
    ]:
        assert "HX-Redirect" in decide(browser, waiting, action, **fields)
        waiting.refresh_from_db()
        assert waiting.status == status
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, entry.actor_user_id) == (f"tenant.{action}", staff.pk)


def test_a_dialog_whose_script_did_not_take_the_form_over_leads_on_too(
    browser: Client, waiting: Tenant
) -> None:
    path = f"/admin/tenants/tenant/{waiting.pk}/approve/"
    assert f'action="{path}"' in browser.get(path).content.decode()
    following = Tenant.objects.create(name="Bina Foods", status=Tenant.Status.PENDING_APPROVAL)
    answer = browser.post(path, {"_form_submitted": "on"})
    assert answer.status_code == 302
    assert str(following.pk) in answer["Location"]
    assert (
        f"{waiting.name} is approved. Next in the queue: Bina Foods."
        in browser.get(answer["Location"]).content.decode()
    )


def test_the_second_reviewer_sees_the_conflict(browser: Client, waiting: Tenant) -> None:
    decide(member(roles.REVIEWER), waiting, "approve")
    where = decide(browser, waiting, "approve")["HX-Redirect"]
    assert "Another person decided before you" in browser.get(where).content.decode()
    assert AuditEntry.objects.filter(action="tenant.approve").count() == 1


def test_a_business_that_applied_again_waits_since_then(browser: Client, waiting: Tenant) -> None:
    sign_up = SignUp.objects.get(tenant=waiting)
    answers = sign_ups.Application(
        **{name: getattr(sign_up, name) for name in sign_ups.Application.__slots__}
    )
    Tenant.objects.filter(pk=waiting.pk).update(created_at=now() - timedelta(days=100))
    yesterday = Tenant.objects.create(name="Yesterday", created_at=now() - timedelta(days=1, hours=1))
    youngest = Tenant.objects.create(name="Youngest", created_at=now() - timedelta(minutes=5))

    def queue() -> str:
        page = browser.get("/admin/tenants/tenant/?status__exact=pending_approval").content.decode()
        return html.unescape(page).replace("\xa0", " ")

    sign_ups.apply_again(answers, tenant_id=waiting.pk)
    assert "3 months" in queue(), "a correction while it waits keeps its place"
    assert queue().index(waiting.name) < queue().index(yesterday.name)
    decide(browser, waiting, "reject", reason="Not you")
    sign_ups.apply_again(answers, tenant_id=waiting.pk)
    sign_ups.apply_again(answers, tenant_id=waiting.pk)
    assert "3 months" not in queue()
    assert queue().index(yesterday.name) < queue().index(youngest.name) < queue().index(waiting.name)
    cache.clear()
    assert "oldest 1 day" in html.unescape(browser.get("/admin/").content.decode()).replace("\xa0", " ")
    assert str(yesterday.pk) in decide(browser, waiting, "approve")["HX-Redirect"]


def test_after_a_decision_comes_the_next_in_the_queue(browser: Client, waiting: Tenant) -> None:
    following = Tenant.objects.create(name="Younger")
    assert str(following.pk) in decide(browser, waiting, "approve")["HX-Redirect"]


def test_only_what_the_status_allows_is_offered(browser: Client, waiting: Tenant) -> None:
    def offered() -> set[str]:
        page = browser.get(f"/admin/tenants/tenant/{waiting.pk}/change/").content.decode()
        return set(re.findall(rf"{waiting.pk}/(approve|reject|suspend|reinstate)", page))

    assert offered() == {"approve", "reject", "suspend"}
    decide(browser, waiting, "suspend", reason="admin")
    assert offered() == {"reinstate"}


@pytest.mark.parametrize(("act", "status"), [("approve", "active"), ("reject", "rejected")])
def test_a_decision_is_about_the_application_that_the_reviewer_saw(
    browser: Client, waiting: Tenant, act: str, status: str
) -> None:
    application = sign_ups.Application(
        company="Asha LLP", website="https://asha.in", tax_id="AAPFU0939F", tax_id_type="pan", address="1 Road",
        city="Pune", state_code="27", pin_code="411001", phone="+919800000002",
    )  # fmt: skip
    page = f"/admin/tenants/tenant/{waiting.pk}/change/"
    browser.get(page)
    sign_ups.apply_again(application, tenant_id=waiting.id)
    for expected in ("pending_approval", status):
        assert decide(browser, waiting, act, reason="x")["HX-Redirect"] == page
        waiting.refresh_from_db()
        assert waiting.status == expected
        shown = browser.get(page).content.decode()
        assert ("has corrected its application" in shown) is (expected == "pending_approval")
        assert "Another person decided before you" not in shown


@pytest.mark.parametrize(
    ("status", "approved_at", "offered"),
    [
        ("pending_approval", None, {"approve", "reject", "suspend"}),
        ("active", APPROVED, {"suspend"}),
        ("rejected", None, {"approve", "suspend"}),
        ("suspended", APPROVED, {"reinstate"}),
        ("suspended", None, {"reinstate_and_approve"}),
        ("closed", APPROVED, set()),
    ],
)
def test_each_status_offers_its_decisions_and_always_a_note(
    browser: Client,
    tenant: Tenant,
    other_tenant: Tenant,
    status: str,
    approved_at: str | None,
    offered: set[str],
) -> None:
    if status == "closed":
        leaving.close(tenant_id=other_tenant.id)
        status = "suspended"
    Tenant.objects.filter(pk=other_tenant.pk).update(status=status, approved_at=approved_at)
    page = browser.get(f"/admin/tenants/tenant/{other_tenant.pk}/change/").content.decode()
    assert set(re.findall(rf"{other_tenant.pk}/([a-z_]+)/", page)) - {"change", "history"} == {
        *offered,
        *("see_as", "add_note"),
    }


def test_after_other_decisions_the_page_of_the_business_follows(browser: Client, waiting: Tenant) -> None:
    oldest, *_ = [Tenant.objects.create(name=name) for name in ("Older", "Younger", "Youngest")]
    for action, fields in (("suspend", {"reason": "admin"}), ("reinstate_and_approve", {})):
        assert str(waiting.pk) in decide(browser, waiting, action, **fields)["HX-Redirect"]
    assert str(oldest.pk) in decide(browser, Tenant.objects.latest("id"), "reject", reason="x")["HX-Redirect"]


def test_a_usual_reason_is_one_click_and_an_own_reason_counts_instead(browser: Client) -> None:
    usual = approval_admin.CANNED_REJECTIONS[1][0]
    for own, mailed in ((" ", usual), ("Not you", "Not you")):
        tenant = Tenant.objects.create(name="Waiting", contact_email="a@b.example")
        decide(browser, tenant, "reject", canned=usual, reason=own)
        tenant.refresh_from_db()
        assert tenant.rejected_reason == mailed


def test_the_note_of_a_suspension_is_read_in_the_trail(browser: Client, waiting: Tenant) -> None:
    decide(browser, waiting, "suspend", reason="abuse", note="Sends spam")
    for _ in range(20):
        audit.record(action="support.view", target_type="tenant", target_id=waiting.pk, tenant_id=waiting.pk)
    page = browser.get(f"/admin/tenants/tenant/{waiting.pk}/change/").content.decode()
    trail = page.partition("Trail")[2].partition("</ul>")[0]
    for words in ("Business suspended · staff@service.example · Sends spam", "Signed up · owner@infosys.com"):
        assert words in trail
    assert trail.index("Business suspended") < trail.index("Signed up")


def test_a_page_of_a_business_has_the_evidence_of_no_other(
    browser: Client, staff: User, waiting: Tenant, tenant: Tenant
) -> None:
    for text in ("First call", "Second call"):
        TenantNote.objects.create(tenant=waiting, author=staff, text=text)
    api_keys.create(name="server", environment="live", tenant=waiting)
    pages = {
        each: browser.get(f"/admin/tenants/tenant/{each.pk}/change/").content.decode()
        for each in (waiting, tenant)
    }
    evidence = ("44 Electronics City", "Second call", "First call", "Trail", "owner@infosys.com (Owner)")
    assert [words for words in evidence if words not in pages[waiting]] == []
    assert [words for words in evidence if words in pages[tenant]] == []
    assert pages[waiting].index("Second call") < pages[waiting].index("First call"), "newest first"
    keys = [re.search(r"/apikey/\?q=[^>]*>(\d+)<", page) for page in pages.values()]
    assert [found and found[1] for found in keys] == ["1", "0"]


def test_a_businesss_page_counts_working_keys_and_names_its_active_people(
    browser: Client, tenant: Tenant
) -> None:
    for name in ("here", "gone"):
        User.objects.create_user(f"{name}@traders.example", tenant=tenant, is_active=name == "here")
        new = api_keys.create(name=name, environment="live", tenant=tenant)
    api_keys.revoke(keys=ApiKey.objects.all(), key_id=new.row.id)
    page = browser.get(f"/admin/tenants/tenant/{tenant.pk}/change/").content.decode()
    found = re.search(r"/apikey/\?q=[^>]*>(\d+)<", page)
    assert found is not None
    assert found[1] == "1"
    assert "here@traders.example (Owner)" in page
    assert "gone@traders.example" not in page


def test_an_app_and_its_key_are_made_and_the_key_is_shown_once(browser: Client) -> None:
    added = browser.post("/admin/tenants/platformapp/add/", {"name": "Shop platform"})
    app = PlatformApp.objects.get()
    assert added["Location"] == f"/admin/tenants/platformapp/{app.pk}/change/"
    another = browser.post("/admin/tenants/platformapp/add/", {"name": "Desk", "_addanother": "x"})
    assert another["Location"] == "/admin/tenants/platformapp/add/"
    made = browser.post(
        f"/admin/tenants/platformapp/{app.pk}/new_key/",
        {"_form_submitted": "on", "name": "server", "environment": "live"},
    )
    key = re.search(r"wb_live_\w{40}", made.content.decode())
    assert key is not None
    assert "no-store" in made["Cache-Control"]
    assert ApiKey.objects.get().key_hash == api_keys.hash_of(key[0])
    assert {entry.action for entry in AuditEntry.objects.all()} == {"app.create", "api_key.create"}


def test_an_app_is_not_renamed(browser: Client, platform_app: PlatformApp) -> None:
    path = f"/admin/tenants/platformapp/{platform_app.pk}/change/"
    assert browser.post(path, {"name": "Another"}).status_code == 403
    assert PlatformApp.objects.get().name == platform_app.name


def test_people_and_domain_rules_are_changed_by_superusers_and_audited(browser: Client) -> None:
    browser.post(
        "/admin/tenants/user/add/",
        {"email": "New@service.example", "role": "owner", "is_staff": "on", "is_active": "on"},
    )
    person = User.objects.get(email="new@service.example")
    assert not person.has_usable_password()
    browser.post("/admin/tenants/emaildomainrule/add/", {"domain": "zoho.com", "verdict": "allow"})
    assert EmailDomainRule.objects.get().verdict == "allow"
    assert {entry.action for entry in AuditEntry.objects.all()} == {"user.create", "email_domain.rule"}


@pytest.mark.parametrize("act", ["role", "deactivation", "move", "removal"])
def test_a_business_keeps_an_owner_and_learns_what_staff_changed_in_its_team(
    browser: Client, tenant: Tenant, act: str
) -> None:
    User.objects.filter(tenant=tenant).delete()
    person = User.objects.create_user("asha@traders.example", tenant=tenant, role="owner")
    other = Tenant.objects.create(name="Second", status="active")
    Invitation.objects.create(tenant=tenant, email="own@x.example", role="owner", invited_by=person)
    form = {"email": person.email, "tenant": str(tenant.pk), "role": "owner", "is_active": "on"}
    changed = {
        "role": {**form, "role": "developer"},
        "deactivation": {**form, "is_active": ""},
        "move": {**form, "tenant": str(other.pk)},
        "removal": {**form, "tenant": ""},
    }[act]
    path = f"/admin/tenants/user/{person.pk}/change/"
    refused = browser.post(path, changed)
    assert refused.status_code == 200
    assert "An account needs an owner" in refused.content.decode()
    assert Invitation.objects.open().count() == 1
    assert not AuditEntry.objects.exists()
    User.objects.create_user("ravi@traders.example", tenant=tenant, role="owner")
    assert browser.post(path, changed).status_code == 302
    assert not Invitation.objects.open().exists()
    left = [("team.remove", {"role": "owner"}, {"role": None})]
    assert [
        (entry.action, entry.details.get("before"), entry.details.get("after"))
        for entry in AuditEntry.objects.filter(tenant_id=tenant.pk)
    ] == {
        "role": [("user.change", {"role": "owner"}, {"role": "developer"})],
        "deactivation": [("user.change", {"is_active": True}, {"is_active": False})],
        "move": left,
        "removal": left,
    }[act]
    joined = AuditEntry.objects.filter(tenant_id=other.pk, action="user.change")
    assert joined.exists() == (act == "move")
    assert {entry.details["email"] for entry in AuditEntry.objects.all()} == {person.email}


def test_a_changed_person_keeps_the_password_and_the_entry_names_what_changed(
    browser: Client, tenant: Tenant
) -> None:
    person = User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)
    Tenant.objects.filter(pk=tenant.pk).update(contact_email=person.email, billing_email="bills@shop.example")
    group = Group.objects.get(name=roles.SUPPORT)
    form = {"email": "asha@shop.example", "tenant": str(tenant.pk), "role": "owner", "is_active": "on"}
    token = bearer_tokens.open_session(person).token
    browser.post(f"/admin/tenants/user/{person.pk}/change/", {**form, "is_staff": "on", "groups": [group.pk]})
    assert bearer_tokens.console_caller_for(token) is None, "a new token of staff needs a second factor"
    person.refresh_from_db()
    assert person.check_password("a long enough password")
    entry = AuditEntry.objects.get(action="user.change")
    former, address = "asha@traders.example", "asha@shop.example"
    assert entry.details == {
        "email": former,
        "before": {"email": former, "is_staff": False, "groups": "", "contact_email": former},
        "after": {"email": address, "is_staff": True, "groups": "support", "contact_email": address},
    }
    for path, form in (
        ("add", {"domain": "zoho.com", "verdict": "block"}),
        ("zoho.com/delete", {"post": "yes"}),
    ):
        browser.post(f"/admin/tenants/emaildomainrule/{path}/", form)
        entry = AuditEntry.objects.latest("id")
        assert (entry.target_id, entry.details) == ("zoho.com", {"verdict": "block"})


def test_a_domain_rule_keeps_its_domain_and_has_no_double(browser: Client) -> None:
    path = "/admin/tenants/emaildomainrule"
    EmailDomainRule.objects.create(domain="rival.in", verdict="block", note="Fraud")
    answer = browser.post(f"{path}/add/", {"domain": " Rival.in.", "verdict": "allow"})
    assert "Email domain rule with this Domain already exists." in answer.content.decode()
    browser.post(f"{path}/rival.in/change/", {"domain": "shop.in", "verdict": "block", "note": "Fraud again"})
    assert list(EmailDomainRule.objects.values_list("domain", "verdict", "note")) == [
        ("rival.in", "block", "Fraud again")
    ]
    assert (
        "Give a domain"
        in browser.post(f"{path}/add/", {"domain": "a b", "verdict": "allow"}).content.decode()
    )


def test_a_rule_for_a_domain_in_any_script_counts(browser: Client) -> None:
    browser.post("/admin/tenants/emaildomainrule/add/", {"domain": "bücher.example.com", "verdict": "block"})
    domain = screening.domain_of("asha@bücher.example.com")
    assert domain is not None
    assert not screening.is_business(domain)


def test_only_the_address_that_staff_store_last_logs_a_person_in(browser: Client, tenant: Tenant) -> None:
    person = User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)
    log_in.use_address(person)
    Client().post("/password/reset", {"email": person.email})
    [link] = mail.links_in(OutboundMail.objects.get().text)
    form = {"email": "Asha@shop.example", "tenant": str(tenant.pk), "role": "owner", "is_active": "on"}
    assert browser.post(f"/admin/tenants/user/{person.pk}/change/", form).status_code == 302
    for address, enters in (("asha@traders.example", False), ("asha@shop.example", True)):
        client = Client()
        client.post("/login", {"login": address, "password": "a long enough password"})
        assert ("_auth_user_id" in client.session) is enters
        Client().post("/password/reset", {"email": address})
    assert OutboundMail.objects.values_list("to", flat=True).latest("id") == "asha@shop.example"
    assert OutboundMail.objects.filter(to="asha@traders.example").count() == 1
    answer = Client().get("/" + link.split("/", 3)[3], follow=True)
    assert "does not work" in answer.content.decode()


@pytest.mark.parametrize(
    ("contact", "bills", "contact_after", "bills_after"),
    [
        ("Asha@traders.example", None, "asha@shop.example", None),
        ("asha@traders.example", "asha@traders.example", "asha@shop.example", "asha@shop.example"),
        ("office@traders.example", "asha@traders.example", "office@traders.example", "asha@shop.example"),
        ("asha@traders.example", "books@traders.example", "asha@shop.example", "books@traders.example"),
    ],
)
def test_a_businesss_mails_follow_the_address_that_staff_change(
    browser: Client,
    tenant: Tenant,
    other_tenant: Tenant,
    contact: str,
    bills: str | None,
    contact_after: str,
    bills_after: str | None,
) -> None:
    person = User.objects.create_user("asha@traders.example", tenant=tenant)
    owners = Tenant.objects.filter(pk__in=[tenant.pk, other_tenant.pk])
    owners.update(contact_email=contact, billing_email=bills)
    form = {"email": "asha@shop.example", "tenant": str(tenant.pk), "role": "owner", "is_active": "on"}
    assert browser.post(f"/admin/tenants/user/{person.pk}/change/", form).status_code == 302
    tenant.refresh_from_db()
    assert (tenant.contact_email, tenant.billing_email) == (contact_after, bills_after)
    other_tenant.refresh_from_db()
    assert (other_tenant.contact_email, other_tenant.billing_email) == (contact, bills)


@pytest.mark.parametrize("address", ["ravi@traders.example", "ravi@shop.example"])
@pytest.mark.parametrize(
    ("act", "bills_after"),
    [
        ({"tenant": "{other}"}, None),
        ({"tenant": ""}, None),
        ({"is_active": ""}, None),
        ({"role": "agent"}, None),
        ({"role": "billing"}, "{address}"),
    ],
)
def test_another_owner_gets_the_mails_of_an_owner_whom_staff_move_bar_or_demote(
    browser: Client,
    tenant: Tenant,
    other_tenant: Tenant,
    act: dict[str, str],
    bills_after: str | None,
    address: str,
) -> None:
    person = User.objects.create_user("ravi@traders.example", tenant=tenant, role="owner")
    heir = User.objects.create_user("meena@traders.example", tenant=tenant, role="owner")
    both = Tenant.objects.filter(pk__in=[tenant.pk, other_tenant.pk])
    both.update(contact_email=person.email.title(), billing_email=person.email)
    form = {"email": address, "tenant": str(tenant.pk), "role": "owner", "is_active": "on"}
    form |= {name: value.format(other=other_tenant.pk) for name, value in act.items()}
    assert browser.post(f"/admin/tenants/user/{person.pk}/change/", form).status_code == 302
    tenant.refresh_from_db()
    bills = bills_after and bills_after.format(address=address)
    assert (tenant.contact_email, tenant.billing_email) == (heir.email, bills)
    [entry] = AuditEntry.objects.filter(tenant_id=tenant.pk)
    assert entry.details["before"]["contact_email"] == person.email.title()
    assert entry.details["after"]["contact_email"] == heir.email
    assert entry.details["after"].get("billing_email", person.email) == bills
    other_tenant.refresh_from_db()
    assert (other_tenant.contact_email, other_tenant.billing_email) == (person.email.title(), person.email)


def test_the_upgrade_deletes_addresses_that_people_had_before(tenant: Tenant) -> None:
    person = User.objects.create_user("asha@shop.example", tenant=tenant)
    log_in.use_address(person)
    EmailAddress.objects.create(user=person, email="asha@traders.example", verified=True)
    migration = import_module("tenants.migrations.0022_no_former_addresses")
    migration.delete_former(apps, connection.schema_editor())
    assert [row.email for row in EmailAddress.objects.all()] == ["asha@shop.example"]


def shown_form(browser: Client, path: str) -> dict[str, Any]:
    """The values that a browser submits from a form of the admin without a change."""
    answer = browser.get(path)
    values: dict[str, Any] = {}
    for field in answer.context["adminform"].form:
        shown = field.value()
        if shown not in (None, False):
            values[field.html_name] = (
                [getattr(one, "pk", one) for one in shown] if field.name == "groups" else shown
            )
    hidden = re.findall(
        r'<input type="hidden" name="(initial-[^"]+)"(?: value="([^"]*)")?', answer.content.decode()
    )
    for name, value in hidden:
        values.setdefault(name, []).append(html.unescape(value))
    return values


def test_a_page_of_a_person_restores_no_right_that_was_withdrawn_since(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    owner = User.objects.create_user("owner@traders.example", tenant=tenant)
    person = User.objects.create_user("asha@traders.example", tenant=tenant, is_staff=True, is_superuser=True)
    person.groups.add(Group.objects.get(name=roles.FINANCE))
    path = f"/admin/tenants/user/{person.pk}/change/"
    values = shown_form(browser, path)
    members.change_role(tenant_id=tenant.id, user_id=person.pk, role="read_only", actor_user_id=owner.pk)
    rights = {"is_active": False, "is_staff": False, "is_superuser": False, "tenant": other_tenant.pk}
    User.objects.filter(pk=person.pk).update(**rights)
    person.groups.set([Group.objects.get(name=roles.SUPPORT)])
    assert browser.post(path, values | {"email": "asha@shop.example"}).status_code == 302
    person.refresh_from_db()
    assert (person.email, person.role) == ("asha@shop.example", "read_only")
    assert {name: getattr(person, name) for name in rights} == rights | {"tenant": other_tenant}
    assert [group.name for group in person.groups.all()] == [roles.SUPPORT]
    entry = AuditEntry.objects.get(action="user.change")
    assert entry.tenant_id == other_tenant.pk
    assert entry.details["after"] == {"email": "asha@shop.example"}
    values = shown_form(browser, path)
    browser.post(path, values | {"role": "agent", "is_active": "on", "groups": []})
    person.refresh_from_db()
    assert (person.role, person.is_active, person.groups.count()) == ("agent", True, 0)


def test_a_page_of_a_domain_undoes_no_newer_verdict(browser: Client) -> None:
    rule = EmailDomainRule.objects.create(domain="rival.in", verdict="allow", note="Asked")
    path = "/admin/tenants/emaildomainrule/rival.in/change/"
    values = shown_form(browser, path)
    EmailDomainRule.objects.update(verdict="block")
    assert browser.post(path, values | {"note": "Fraud"}).status_code == 302
    rule.refresh_from_db()
    assert (rule.verdict, rule.note) == ("block", "Fraud")


@pytest.mark.parametrize("path", ["add", "{person.pk}/change"])
def test_an_address_that_has_an_account_is_refused_in_any_letter_case(browser: Client, path: str) -> None:
    User.objects.create_user("asha@traders.example")
    person = User.objects.create_user("ravi@traders.example")
    form = {"email": "Asha@Traders.example", "role": "owner", "is_active": "on"}
    answer = browser.post(f"/admin/tenants/user/{path.format(person=person)}/", form)
    assert "User with this Email already exists." in answer.content.decode()
    assert not User.objects.filter(email="Asha@Traders.example").exists()


def test_the_audit_list_names_who_acted_and_is_filtered_by_action(
    browser: Client, staff: User, key: api_keys.NewKey
) -> None:
    actors: dict[str, dict[str, Any]] = {
        f"API key {key.row.prefix}…": {"acting_key_id": key.row.id},
        staff.email: {"actor_user_id": staff.pk},
        "Person 99 (removed)": {"actor_user_id": 99},
        "The gateway": {},
    }
    for shown, actor in actors.items():
        audit.record(action="app.create", target_type="app", target_id=shown.partition(" ")[0], **actor)
    audit.record(action="tenant.close", target_type="tenant", target_id="another-target")
    page = html.unescape(browser.get("/admin/tenants/auditentry/?action=app.create").content.decode())
    rows = page.partition("<tbody")[2].split("<tbody")
    for shown, row in zip(reversed(actors), rows, strict=True):
        assert shown in row
        assert f">{shown.partition(' ')[0]}</a>" in row
    assert "another-target" not in page


def test_a_keys_page_names_its_owner_and_offers_only_what_is_possible(
    browser: Client, tenant: Tenant, key: api_keys.NewKey, app_key: api_keys.NewKey, platform_app: PlatformApp
) -> None:
    def offered(row: ApiKey) -> tuple[set[str], str]:
        page = browser.get(f"/admin/tenants/apikey/{row.pk}/change/").content.decode()
        return set(re.findall(rf"{row.pk}/(rotate|revoke)_key", page)), page

    for row, acts, owner in (
        (key.row, {"revoke"}, tenant.name),
        (app_key.row, {"revoke", "rotate"}, f"App {platform_app.name}"),
    ):
        found, page = offered(row)
        assert (found, owner in page) == (acts, True)
        api_keys.revoke(keys=ApiKey.objects.all(), key_id=row.pk)
        assert offered(row)[0] == set()


def test_the_list_of_apps_counts_tenants_and_sandboxes(browser: Client, platform_app: PlatformApp) -> None:
    for sandbox in (True, False, True):
        row = Tenant.objects.create(name="Shop", app=platform_app, sandbox=sandbox)
    leaving.close(tenant_id=row.id)
    page = browser.get("/admin/tenants/platformapp/").content.decode()
    assert "3, 1 of 100 sandboxes" in page
    browser.post(
        f"/admin/tenants/platformapp/{platform_app.pk}/new_key/",
        {"_form_submitted": "on", "name": "server", "environment": "test"},
    )
    assert ApiKey.objects.get().environment == "test"


LISTS = {
    f"admin:{model._meta.app_label}_{model._meta.model_name}": page for model, page in staff_pages().items()
}


@pytest.mark.parametrize("name", LISTS)
def test_every_list_is_searched_by_support(name: str) -> None:
    client, row = member(roles.SUPPORT), UUID(int=1)
    own = [ids.encode(prefix, row) for prefix in getattr(LISTS[name], "id_searches", ())]
    for term in ("x", str(row), *own):
        assert client.get(reverse(f"{name}_changelist"), {"q": term}).status_code == 200


SEARCHES = {
    "tenant": ("{tenant.name}", "asha@traders", "shop.example", "AAACI1681G", "shop-7", "{tenant.pk}"),
    "apikey": ("{key.prefix}", "till", "{tenant.pk}"),
    "user": ("ravi@traders", "{tenant.name}", "{tenant.pk}"),
    "platformapp": ("Shop plat", "{app.pk}"),
    "emaildomainrule": ("zoho",),
}


@pytest.mark.parametrize("model", SEARCHES)
def test_a_list_finds_rows_by_all_that_its_search_names(
    browser: Client, tenant: Tenant, other_tenant: Tenant, platform_app: PlatformApp, model: str
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(
        contact_email="asha@traders.example", website="https://shop.example", tax_id="29AAACI1681G1ZL",
        external_ref="shop-7",
    )  # fmt: skip
    platform_apps.create_app(name="Till")
    for domain in ("zoho.com", "infosys.com"):
        EmailDomainRule.objects.create(domain=domain, verdict="allow")
    key = api_keys.create(name="till", environment="live", tenant=tenant).row
    api_keys.create(name="server", environment="live", tenant=other_tenant)
    person = User.objects.create_user("ravi@traders.example", tenant=tenant)
    wanted: dict[str, Any] = {"tenant": tenant, "apikey": key, "user": person, "platformapp": platform_app}
    named = {"tenant": tenant, "key": key, "app": platform_app}
    for term in SEARCHES[model]:
        page = browser.get(f"/admin/tenants/{model}/", {"q": term.format(**named)}).content.decode()
        found = set(re.findall(rf'href="/admin/tenants/{model}/([^/"]+)/change/', page))
        assert found == {str(wanted[model].pk) if model in wanted else "zoho.com"}, term


def test_an_apps_keys_are_found_by_its_id(
    browser: Client, key: api_keys.NewKey, app_key: api_keys.NewKey
) -> None:
    page = browser.get(f"/admin/tenants/apikey/?q={app_key.row.app_id}").content.decode()
    assert str(app_key.row.pk) in page
    assert str(key.row.pk) not in page


def test_the_page_of_a_business_and_of_a_key_have_what_staff_need(
    browser: Client, tenant: Tenant, platform_app: PlatformApp
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(
        rejected_reason="A shell.", suspended_reason="abuse", retention_days=365, created_via="app",
        billing_status="past_due", billing_email="books@traders.example", external_ref="shop-7",
        tax_id="29AAACI1681G1ZL", tax_id_type="gstin", app=platform_app,
    )  # fmt: skip
    old = api_keys.create(name="till", environment="test", tenant=tenant, phone_number_ids=["200300"])
    new = api_keys.rotate(keys=ApiKey.objects.all(), key_id=old.row.pk, acting_key_id=old.row.pk).row
    for path, texts in (
        (
            f"tenant/{tenant.pk}",
            (
                "A shell.",
                "Abuse",
                "365 days",
                "Past due",
                "books@traders.example",
                "shop-7",
                "GSTIN",
                "Shop platform",
            ),
        ),
        (f"apikey/{new.pk}", ("till", "test", "200300", "messages", f"{old.row.prefix}…", str(old.row.pk))),
    ):
        page = html.unescape(browser.get(f"/admin/tenants/{path}/change/").content.decode())
        assert [text for text in texts if text not in page] == []


def test_history_has_no_change_or_delete(browser: Client, waiting: Tenant) -> None:
    entry = AuditEntry.objects.latest("id")
    path = f"/admin/tenants/auditentry/{entry.pk}"
    assert browser.get(f"{path}/change/").status_code == 200
    assert browser.post(f"{path}/change/", {"action": "x"}).status_code == 403
    assert browser.post(f"{path}/delete/", {"post": "yes"}).status_code == 403
    assert browser.get("/admin/tenants/auditentry/add/").status_code == 403


def test_no_page_of_this_app_shows_a_secret(
    browser: Client, staff: User, tenant: Tenant, waiting: Tenant
) -> None:
    key = api_keys.create(name="server", environment="live", tenant=tenant)
    app = platform_apps.create_app(name="Shop platform")
    token = bearer_tokens.open_session(staff).token
    secrets = [
        key.key,
        key.row.key_hash,
        token,
        staff.password,
        "the-hash-of-a-password",
        User.objects.get(tenant=waiting).password,
    ]
    person = User.objects.get(tenant=waiting)
    rows = (tenant, waiting, key.row, app, staff, person, AuditEntry.objects.latest("id"))
    paths = [reverse(f"{name}_changelist") for name in LISTS if name.startswith("admin:tenants")] + [
        reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk]) for row in rows
    ]
    for path in paths:
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert not [secret for secret in secrets if secret in answer.content.decode()], path


def test_the_overview_counts_what_needs_attention(browser: Client, waiting: Tenant) -> None:
    cache.clear()
    page = browser.get("/admin/").content.decode()
    assert "Waiting for approval" in page
    assert "Messages per hour" in page
    assert "unsafe-eval" in browser.get("/admin/")["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("code", "searched"),
    [
        ("duplicate_tax_id", "29AAACI1681G1ZL"),
        ("duplicate_pan", "AAACI1681G"),
        ("duplicate_email_domain", "traders.example"),
        ("duplicate_website", "https://shop.example"),
        ("previously_rejected", "AAACI1681G"),
        ("role_email", None),
        ("many_signups_same_ip", None),
    ],
)
def test_each_flag_about_others_searches_for_what_they_share(
    browser: Client, tenant: Tenant, code: str, searched: str | None
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(
        tax_id="29AAACI1681G1ZL",
        email_domain="traders.example",
        contact_email="asha@traders.example",
        website="https://shop.example",
        flags=[{"code": code, "severity": "high", "detail": "Others."}],
    )
    page = browser.get(f"/admin/tenants/tenant/{tenant.pk}/change/").content.decode()
    links = re.findall(r'href="/admin/tenants/tenant/\?q=([^"]+)">Show them', page)
    assert [unquote(link) for link in links] == [searched] * (searched is not None)
    for link in links:
        assert tenant.name in browser.get(f"/admin/tenants/tenant/?q={link}").content.decode()


def test_the_queue_shows_whose_website_and_tax_id_it_is(browser: Client, waiting: Tenant) -> None:
    def row() -> str:
        page = browser.get(f"/admin/tenants/tenant/?q={waiting.pk}").content.decode()
        return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<tbody")[2]).split())

    assert "other.in ≠ email at infosys.com" in row()
    assert "29AAACI1681G1ZL Company" in row()
    Tenant.objects.update(website="https://infosys.com", tax_id=(without_pan := with_check("0717USA00012UN")))
    assert "infosys.com ✓ same domain: infosys.com" in row()
    assert f"{without_pan} no PAN" in row()
    assert re.search(r"Pending approval \d+ minutes", row()), "how long it waits"
    Tenant.objects.update(status="active")
    assert "Active –" in row()


def test_a_flag_that_names_others_leads_to_them(browser: Client, tenant: Tenant) -> None:
    flags = [
        {"code": "duplicate_website", "severity": "warning", "detail": "Also with this website: Bina."},
        {"code": "pan_individual", "severity": "info", "detail": "The PAN is an individual's."},
    ]
    Tenant.objects.filter(pk=tenant.pk).update(website="https://traders.example", flags=flags)
    page = browser.get(f"/admin/tenants/tenant/{tenant.pk}/change/").content.decode()
    link = "/admin/tenants/tenant/?q=https%3A%2F%2Ftraders.example"
    assert page.count("Show them") == 1
    assert f'href="{link}"' in page
    assert tenant.name in browser.get(link).content.decode()


def test_an_empty_list_offers_only_what_can_be_done(browser: Client) -> None:
    page = browser.get("/admin/tenants/auditentry/").content.decode()
    assert "There is no audit entry yet." in page
    assert "Create a new item" not in page
    assert "Nothing matches" in browser.get("/admin/tenants/auditentry/?q=no.such").content.decode()


def test_the_audit_list_says_what_changed(browser: Client, tenant: Tenant) -> None:
    audit.record(
        action="tenant.update",
        target_type="tenant",
        target_id=tenant.id,
        tenant_id=tenant.id,
        details={"before": {"retention_days": 90}, "after": {"retention_days": 30}},
    )
    for query, found in (("", True), ("?q=tenant.update", True), ("?q=tenant.approve", False)):
        page = browser.get(f"/admin/tenants/auditentry/{query}").content.decode()
        assert ("Retention days: 90 → 30" in page) is found


def test_an_empty_list_says_how_far_back_it_looked(browser: Client) -> None:
    page = browser.get("/admin/webhooks/event/").content.decode()
    assert "Nothing in the last 24 hours" in page
    assert "Choose a longer period" in page
    for period in ("24 hours", "7 days", "30 days", "a year"):
        assert re.search(rf">\s*{period}\s*<", page), period
    assert "Nothing matches" in browser.get("/admin/webhooks/event/?period=7").content.decode()
