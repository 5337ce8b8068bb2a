"""Sign-up at the console: form → mailed link → confirmation → a tenant that waits."""

import re
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core.cache import cache
from django.db import connection
from django.test import Client, TestCase

from console.sign_up import ApplicationForm
from gateway.api.errors import Conflict
from gateway.clock import now
from tenants import mail, tenant_status
from tenants.credentials import key_cache
from tenants.models import AuditEntry, OutboundMail, SignUp, Tenant, User
from tenants.signup import screening, sign_ups
from tenants.tests.test_tax_ids import with_check
from tests.threads import at_once

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery staple"
FORM = {
    "email": "Owner@Infosys.com",
    "password": PASSWORD,
    "phone": "98000 00001",
    "company": "Infosys Limited",
    "website": "www.infosys.com",
    "tax_id": "29 AAACI1681G 1ZL",
    "address": "44 Electronics City",
    "city": "Bengaluru",
    "pin_code": "560100",
    "state_code": "29",
}


@pytest.fixture
def browser() -> Client:
    return Client(enforce_csrf_checks=False)


def last_link(email: str = "owner@infosys.com") -> str:
    row = OutboundMail.objects.filter(to=email).latest("id")
    return "/" + mail.links_in(row.text)[0].split("/", 3)[3]


def sign_up(browser: Client, **changes: str) -> Any:
    return browser.post("/sign-up", FORM | changes)


def test_a_confirmed_sign_up_is_a_tenant_that_waits(browser: Client) -> None:
    assert sign_up(browser)["Location"] == "/sign-up/sent"
    assert not Tenant.objects.exists()
    assert not User.objects.exists()
    link = last_link()
    assert b"Infosys Limited" in browser.get(link).content
    assert not Tenant.objects.exists(), "opening the link alone must not confirm: mail scanners open links"
    assert browser.post(link).status_code == 200
    tenant = Tenant.objects.get()
    assert tenant.status == Tenant.Status.PENDING_APPROVAL
    assert (tenant.name, tenant.contact_email) == ("Infosys Limited", "owner@infosys.com")
    assert (tenant.website, tenant.email_domain) == ("https://www.infosys.com", "infosys.com")
    assert (tenant.tax_id, tenant.tax_id_type) == ("29AAACI1681G1ZL", "gstin")
    assert tenant.flags == []
    evidence = SignUp.objects.get(tenant=tenant)
    assert (evidence.phone, evidence.pin_code, evidence.state_code) == ("+919800000001", "560100", "29")
    assert evidence.password == ""
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_user_id) == ("tenant.sign_up", User.objects.get().pk)
    assert entry.details == {"flags": []}
    logged_in = Client().post("/login", {"login": "owner@infosys.com", "password": PASSWORD})
    assert logged_in["Location"] == "/console", "the address needs no further confirmation"
    assert EmailAddress.objects.filter(email="owner@infosys.com", verified=True, primary=True).exists()


def test_an_address_with_a_quoted_name_signs_up(browser: Client) -> None:
    address = '"a@b"@infosys.com'
    sign_up(browser, email=address)
    assert browser.post(last_link(address)).status_code == 200
    tenant = Tenant.objects.get()
    assert (tenant.contact_email, tenant.email_domain, tenant.flags) == (address, "infosys.com", [])


def test_the_entry_of_a_sign_up_names_its_flags(browser: Client) -> None:
    sign_up(browser, email="info@infosys.com", website="other.in")
    browser.post(last_link("info@infosys.com"))
    codes = [flag["code"] for flag in Tenant.objects.get().flags]
    assert codes == ["email_domain_differs_from_website", "role_email"]
    assert AuditEntry.objects.get().details == {"flags": codes}


def test_a_link_works_once_and_for_24_hours(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_up(browser)
    link = last_link()
    assert browser.get(f"{link}x").status_code == 410
    with monkeypatch.context() as later:
        later.setattr(sign_ups, "LINK_LIFETIME", timedelta(seconds=-1))
        assert browser.post(link).status_code == 410
    assert browser.post(link).status_code == 200
    assert browser.get(link).status_code == 410
    assert browser.post(link).status_code == 410
    assert Tenant.objects.count() == 1


def test_nobody_confirms_the_form_of_a_stranger(browser: Client) -> None:
    """The stranger would know the password of the account, before its owner has ever logged in."""
    sign_up(browser)
    own = last_link()
    stranger = Client()
    sign_up(stranger, password="a password of the stranger")
    strange = last_link()
    assert own != strange
    for reader, link in ((browser, strange), (Client(), strange), (Client(), own)):
        assert b'name="password"' in reader.get(link).content
        for typed in ({}, {"password": "none of both"}):
            assert reader.post(link, typed).status_code == 400
    assert browser.post(strange, {"password": PASSWORD}).status_code == 400
    assert not User.objects.exists()
    assert b'name="password"' not in browser.get(own).content
    assert Client().post(own, {"password": PASSWORD}).status_code == 200, "a phone that read the mail"
    assert User.objects.get().check_password(PASSWORD)
    assert stranger.post(strange).status_code == 410


def test_passwords_are_not_guessed_at_a_mailed_link(browser: Client) -> None:
    sign_up(browser)
    reader, link = Client(), last_link()
    answers = [reader.post(link, {"password": "wrong"}).status_code for _ in range(21)]
    assert answers == [400] * 20 + [429]
    assert browser.post(link).status_code == 200


def test_the_log_in_begins_with_the_address_that_this_browser_signed_up_with(browser: Client) -> None:
    sign_up(browser)
    browser.post(last_link())
    assert 'value="owner@infosys.com"' in browser.get("/login").content.decode()
    assert "owner@infosys.com" not in Client().get("/login").content.decode()


def test_a_known_address_gets_the_same_page_and_another_mail(browser: Client) -> None:
    first = sign_up(browser)
    browser.post(last_link())
    again = sign_up(browser, company="Somebody Else Ltd", password="a different long password")
    assert (again.status_code, again["Location"]) == (first.status_code, first["Location"])
    assert "already" in OutboundMail.objects.latest("id").subject
    assert Tenant.objects.count() == 1
    assert User.objects.get().check_password(PASSWORD)


def test_accounts_of_others_do_not_count(browser: Client) -> None:
    User.objects.create_user("first@infosys.com", PASSWORD)
    sign_up(browser)
    row = SignUp.objects.get()
    assert "Confirm" in OutboundMail.objects.get().subject
    SignUp.objects.all().delete()
    sign_ups.start_again(row.pk, email=row.email)
    assert OutboundMail.objects.count() == 1


def test_the_first_to_enter_an_address_wins_nothing(browser: Client) -> None:
    sign_up(browser, company="Squatter Ltd", password="the squatter knows this")
    squatters_link = last_link()
    sign_up(browser)
    assert browser.post(last_link()).status_code == 200
    assert browser.post(squatters_link).status_code == 410
    assert User.objects.get().check_password(PASSWORD)
    assert Tenant.objects.get().name == "Infosys Limited"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("email", "me@gmail.com", "own domain"),
        ("email", "me@mailinator.com", "own domain"),
        ("email", "nobody", "valid email"),
        ("password", "short", "at least 12"),
        ("password", "1q2w3e4r5t6y", "too common"),
        ("password", "owner@infosys.com", "too similar"),
        ("password", "Infosys Limited", "too similar to the company"),
        ("website", "localhost", "domain name"),
        ("website", "infosys.com/" + "a" * 240, "too long"),
        ("website", f"{'bücher.' * 17}abcdefghij.com", "too long"),
        ("email", f"me@{'bücher.' * 17}abcdefghij.com", "too long"),
        ("tax_id", "29AAACI1681G1ZX", "typing mistake"),
        ("tax_id", "123", "15 characters"),
        ("pin_code", "012345", "six digits"),
        ("state_code", "97", "Select a valid choice"),
        ("phone", "12", "country code"),
        ("company", "", "required"),
    ],
)
def test_a_wrong_field_is_said_beside_the_field(
    browser: Client, field: str, value: str, sentence: str
) -> None:
    answer = sign_up(browser, **{field: value})
    assert answer.status_code == 400
    page = answer.content.decode()
    error = re.search(rf'<ul class="errorlist" id="id_{field}_error">(.*?)</ul>', page, re.DOTALL)
    assert error is not None, page
    assert sentence in error[1]
    control = re.search(rf'<(?:input|select)[^>]*id="id_{field}"[^>]*>', page)
    assert control is not None
    assert 'aria-invalid="true"' in control[0]
    assert f"id_{field}_error" in control[0]
    assert f'<label for="id_{field}">' in page
    assert not SignUp.objects.exists()
    assert PASSWORD not in page


def test_a_sign_up_to_correct_asks_for_the_password_again_and_lists_errors_as_the_page_goes(
    browser: Client,
) -> None:
    page = sign_up(browser, tax_id="1", company="").content.decode()
    assert "Please type it again" in page
    assert FORM["password"] not in page
    summary = page.partition('role="alert"')[2].partition("</div>")[0]
    assert re.findall(r'href="#id_(\w+)"', summary) == ["password", "company", "tax_id"]
    whole = sign_up(browser, password="short").content.decode()
    assert "Please type it again" not in whole, "the password's own error says enough"


def test_sign_ups_are_limited_by_address_of_the_caller(browser: Client) -> None:
    answers = [sign_up(browser, email=f"person{number}@infosys.com").status_code for number in range(21)]
    assert answers == [302] * 20 + [429]


@pytest.mark.parametrize(
    ("typed", "phone"),
    [
        ("98000 00001", "+919800000001"),
        ("098000-00001", "+919800000001"),
        ("6000000000", "+916000000000"),
        ("+91 (98000) 00.001", "+919800000001"),
        ("+1234567 8", "+12345678"),
        ("+123456789012345", "+123456789012345"),
        *(
            (wrong, None)
            for wrong in ("5800000001", "009800000001", "919800000001", "+0980000000", "+1234567")
        ),
        *((wrong, None) for wrong in ("+1234567890123456", "+91 98000 0000x", "９８０００00001", "")),
    ],
)
def test_a_phone_number_is_stored_with_its_country_code(typed: str, phone: str | None) -> None:
    if phone is None:
        with pytest.raises(sign_ups.InvalidPhoneError):
            sign_ups.parse_phone(typed)
    else:
        assert sign_ups.parse_phone(typed) == phone


@pytest.mark.parametrize(
    ("state", "subject"),
    [
        ("waiting", "Confirm"),
        ("of another address", None),
        ("of the day before yesterday", "Confirm"),
        ("too old", None),
        ("confirmed", "already"),
        ("none", None),
        ("none, with an account", "already"),
    ],
)
def test_the_mail_is_sent_again_only_for_what_this_browser_waits_for(
    browser: Client, state: str, subject: str | None
) -> None:
    sign_up(browser)
    row = SignUp.objects.get()
    if state in {"confirmed", "none, with an account"}:
        browser.post(last_link())
    SignUp.objects.filter(email=row.email).update(
        email="b@other.in" if state == "of another address" else row.email,
        created_at=now()
        - timedelta(hours={"too old": 145, "of the day before yesterday": 48}.get(state, 23)),
    )
    OutboundMail.objects.all().delete()
    sign_ups.start_again(None if state.startswith("none") else row.pk, email=row.email)
    subjects = list(OutboundMail.objects.values_list("subject", "to"))
    assert [to for _, to in subjects] == [row.email] * (subject is not None)
    assert all(subject in each for each, _ in subjects if subject)


def test_one_mailbox_is_not_flooded(browser: Client) -> None:
    answers = [sign_up(browser).status_code for _ in range(6)]
    assert answers == [302] * 5 + [429]
    assert OutboundMail.objects.count() == 5


def test_unconfirmed_sign_ups_are_pruned_after_a_week(browser: Client) -> None:
    sign_up(browser)
    assert sign_ups.prune_unconfirmed() == 0
    sign_up(browser, email="other@infosys.com")
    browser.post(last_link())
    SignUp.objects.update(created_at=now() - timedelta(days=8))
    assert sign_ups.prune_unconfirmed() == 1
    assert SignUp.objects.get().confirmed_at is not None, "a customer's application stays"


@pytest.mark.django_db(transaction=True)
def test_a_link_used_twice_at_once_makes_one_tenant() -> None:
    sign_up(Client())
    sign_up(Client())
    links = [mail.links_in(row.text)[0] for row in OutboundMail.objects.all()]
    tokens = [link.rpartition("/")[2] for link in links] * 2
    errors = at_once(*(partial(sign_ups.confirm, token) for token in tokens))
    assert [type(error) for error in errors] == [sign_ups.ConfirmationLinkError] * 3
    assert Tenant.objects.count() == User.objects.count() == 1


def flags_of(**changes: Any) -> set[str]:
    fields = {
        "email": "owner@infosys.com",
        "company": "Infosys Limited",
        "website": "https://www.infosys.com",
        "tax_id": "29AAACI1681G1ZL",
        "tax_id_type": "gstin",
        "address": "x",
        "city": "Bengaluru",
        "state_code": "29",
        "pin_code": "560100",
        "phone": "+919800000001",
        "ip": "192.0.2.7",
    }
    found = screening.compute(SignUp.objects.create(**{**fields, **changes}))
    assert all(set(flag) == {"code", "severity", "detail"} for flag in found)
    return {flag["code"] for flag in found}


@pytest.fixture
def existing() -> Tenant:
    return Tenant.objects.create(
        name="Earlier",
        tax_id="29AAACI1681G1ZL",
        tax_id_type="gstin",
        email_domain="infosys.com",
        website="https://www.infosys.com",
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"website": "https://other.in"}, "email_domain_differs_from_website"),
        ({"email": "info@infosys.com"}, "role_email"),
        ({"tax_id": "29AAACI1681G1DU"}, "gstin_unusual_form"),
        ({"tax_id": "ACUPA7085R", "company": "Asha"}, "pan_individual"),
        ({"tax_id": "AAPFU0939F"}, "pan_holder_type_vs_name"),
        ({"state_code": "27"}, "gstin_state_differs_from_address"),
        ({"phone": "+4915100000000"}, "non_indian_phone"),
    ],
)
def test_each_oddity_of_a_sign_up_is_one_flag(changes: dict[str, str], code: str) -> None:
    assert flags_of(**changes) == {code}


@pytest.mark.parametrize(
    ("company", "holder"),
    [
        *(
            (name, "C")
            for name in ("Asha Limited", "ASHA LTD", "Asha Pvt Ltd", "Asha Pvt. Ltd.", "Asha Inc.")
        ),
        *((name, "C") for name in ("Asha Private Limited.", "Asha pvt. ltd", "Asha Pvt.Ltd.")),
        *((name, "F") for name in ("Asha LLP", "Asha & Sons llp.")),
        *((name, None) for name in ("Asha", "Limited Editions", "LLP Shop", "Asha Trust")),
        *((name, None) for name in ("Shree Zinc", "Coffee Unlimited", "Gullp")),
    ],
)
def test_the_name_of_a_company_or_firm_must_fit_its_pan(company: str, holder: str | None) -> None:
    pans = {"C": "AAACI1681G", "F": "AAPFU0939F"}
    flagged = {
        letter
        for letter, pan in pans.items()
        if "pan_holder_type_vs_name" in flags_of(company=company, tax_id=pan)
    }
    assert flagged == (set() if holder is None else pans.keys() - {holder})


@pytest.mark.parametrize("state", ["97", "99"])
def test_a_gstin_of_no_state_fits_every_address(state: str) -> None:
    assert flags_of(tax_id=with_check(f"{state}AAACI1681G1Z")) == set()


def test_duplicates_are_flagged_and_do_not_block(existing: Tenant) -> None:
    assert flags_of() == {"duplicate_tax_id", "duplicate_email_domain", "duplicate_website"}
    assert "duplicate_pan" in flags_of(tax_id="AAACI1681G")


def test_a_tax_id_without_a_pan_has_nobodys(existing: Tenant) -> None:
    assert "duplicate_pan" not in flags_of(tax_id=with_check("07DELH08881E1D"))


OTHER = {"tax_id": "AAPFU0939F", "email": "x@other.in", "website": "https://other.in", "company": "Other"}


@pytest.mark.parametrize(
    ("shared", "is_flagged"),
    [
        ({"tax_id": "29AAACI1681G1ZL"}, True),
        ({"tax_id": "AAACI1681G"}, True),
        ({"email": "x@mail.infosys.com"}, True),
        ({"tax_id": with_check("07DELH08881E1D")}, True),
        ({"website": "https://www.infosys.com"}, False),
        ({}, False),
    ],
)
def test_an_earlier_rejection_is_flagged(existing: Tenant, shared: dict[str, str], is_flagged: bool) -> None:
    Tenant.objects.create(name="Without a PAN", tax_id=with_check("07DELH08881E1D"))
    assert "previously_rejected" not in flags_of(**OTHER | shared), "it was not rejected yet"
    Tenant.objects.update(status=Tenant.Status.REJECTED, rejected_reason="a shell")
    assert ("previously_rejected" in flags_of(**OTHER | shared)) is is_flagged


def test_a_flag_about_others_names_three_of_them_and_the_latest_rejection() -> None:
    for name in ("First", "Second", "Third", "Fourth"):
        Tenant.objects.create(
            name=name, tax_id="AAPFU0939F", website="https://o.in", rejected_reason=f"The {name.lower()}."
        )
    found = screening.compute(SignUp.objects.create(**OTHER | {"website": "https://o.in", "phone": "+91"}))
    said = {flag["code"]: flag["detail"] for flag in found}
    assert said["duplicate_tax_id"] == "Also with this tax id: First, Second, Third."
    assert said["previously_rejected"] == "Fourth: The fourth."


def test_sign_ups_of_the_same_person_or_from_elsewhere_are_not_counted() -> None:
    for email, ip in (("a", "192.0.2.7"), ("a", "192.0.2.7"), ("c", "192.0.2.7"), ("d", "192.0.2.8")):
        found = flags_of(email=f"{email}@infosys.com", ip=ip)
    assert "many_signups_same_ip" not in found
    assert "many_signups_same_ip" not in flags_of(email="c@infosys.com"), "the same person again"
    assert "many_signups_same_ip" in flags_of(email="e@infosys.com")


def test_hosts_below_no_public_suffix_are_not_each_others(existing: Tenant) -> None:
    Tenant.objects.update(email_domain="", status=Tenant.Status.REJECTED, rejected_reason="a shell")
    found = flags_of(email="owner@other.nosuchsuffix", tax_id="AAACI1681H", website="https://other.in")
    assert not found & {"duplicate_email_domain", "previously_rejected"}


def test_many_sign_ups_from_one_address_are_flagged() -> None:
    assert "many_signups_same_ip" not in flags_of(email="a@infosys.com") | flags_of(email="b@infosys.com")
    assert "many_signups_same_ip" in flags_of(email="c@infosys.com")


COMPANY = {name: value for name, value in FORM.items() if name not in {"email", "password"}}


def tenant_reason(status: str) -> str | None:
    return "Wrong tax id." if status == "rejected" else None


def confirmed(browser: Client, status: str) -> Tenant:
    sign_up(browser)
    browser.post(last_link())
    tenant = Tenant.objects.get()
    Tenant.objects.filter(pk=tenant.pk).update(status=status, rejected_reason=tenant_reason(status))
    browser.force_login(User.objects.get())
    return tenant


@pytest.mark.parametrize("status", ["rejected", "pending_approval"])
def test_an_applicant_corrects_the_form_and_applies_again(browser: Client, status: str) -> None:
    tenant = confirmed(browser, status)
    assert (known := key_cache.tenant_by_id(tenant.id)) is not None
    assert known.status == status
    assert "/console/application" in browser.get("/console").content.decode()
    page = browser.get("/console/application").content.decode()
    assert 'value="Infosys Limited"' in page
    with TestCase.captureOnCommitCallbacks(execute=True):
        answer = browser.post("/console/application", COMPANY | {"company": "Infosys BPM Limited"})
    assert answer["Location"] == "/console"
    tenant.refresh_from_db()
    assert (tenant.status, tenant.name) == ("pending_approval", "Infosys BPM Limited")
    assert (known := key_cache.tenant_by_id(tenant.id)) is not None
    assert known.status == tenant.status, "its sandbox keys work at once"
    assert tenant.rejected_reason is None
    assert [flag["code"] for flag in tenant.flags] == ["previously_rejected"] * (status == "rejected")
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.actor_user_id) == ("tenant.apply_again", User.objects.get().pk)
    assert entry.details["before"]["company"] == "Infosys Limited"
    assert entry.details["before"]["rejected_reason"] == ("Wrong tax id." if status == "rejected" else None)


@pytest.mark.parametrize("status", ["rejected", "pending_approval"])
def test_a_correction_replaces_every_answer_and_the_entry_has_both(browser: Client, status: str) -> None:
    earlier = SignUp.objects.create(email="a@earlier.in", company="Earlier", confirmed_at=now())
    tenant = confirmed(browser, status)
    before = sign_up_of(tenant)
    browser.post(
        "/console/application",
        {
            "company": "Asha LLP", "website": "asha.in/shop", "tax_id": "AAPFU0939F", "address": "1 Road",
            "city": "Pune", "pin_code": "411001", "state_code": "27", "phone": "+4915100000000",
        },
    )  # fmt: skip
    tenant.refresh_from_db()
    after = {
        "company": "Asha LLP", "website": "https://asha.in/shop", "tax_id": "AAPFU0939F", "tax_id_type": "pan",
        "address": "1 Road", "city": "Pune", "pin_code": "411001", "state_code": "27", "phone": "+4915100000000",
    }  # fmt: skip
    assert (tenant.name, tenant.website) == (after["company"], after["website"])
    assert (tenant.tax_id, tenant.tax_id_type) == (after["tax_id"], after["tax_id_type"])
    assert sign_up_of(tenant) == after
    earlier.refresh_from_db()
    assert earlier.company == "Earlier"
    details = AuditEntry.objects.latest("id").details
    reason = tenant_reason(status)
    assert details["before"] == before | {"status": status, "rejected_reason": reason}
    assert details["after"] == after | {"status": "pending_approval"}
    flags = {flag["code"]: flag["detail"] for flag in tenant.flags}
    assert {"email_domain_differs_from_website", "non_indian_phone"} <= flags.keys()
    assert flags.get("previously_rejected") == (f"This business: {reason}" if reason else None)


def test_the_last_rejection_stays_flagged_however_often_the_form_is_corrected(browser: Client) -> None:
    tenant = confirmed(browser, "pending_approval")
    Tenant.objects.create(name="Earlier", tax_id=COMPANY["tax_id"], rejected_reason="A shell.")
    shown = []
    for reason in (None, "Wrong tax id.", None, "Wrong address.", None):
        if reason:
            tenant_status.reject(tenant_id=tenant.id, reason=reason)
        browser.post("/console/application", COMPANY)
        tenant.refresh_from_db()
        details = [flag["detail"] for flag in tenant.flags if flag["code"] == "previously_rejected"]
        assert details[0] == "Earlier: A shell."
        shown.append(details[1:])
    first, second = ["This business: Wrong tax id."], ["This business: Wrong address."]
    assert shown == [[], first, first, second, second]


def sign_up_of(tenant: Tenant) -> dict[str, str]:
    """The answers of a tenant's application."""
    answers: dict[str, str] = (
        SignUp.objects.filter(tenant=tenant).values(*sign_ups.Application.__slots__).get()
    )
    return answers


@pytest.mark.parametrize("status", ["active", "suspended"])
def test_what_is_decided_is_corrected_no_more(browser: Client, status: str) -> None:
    confirmed(browser, status)
    page = browser.get("/console/application", follow=True)
    assert page.redirect_chain == [("/console", 302)]
    assert "Your application has been decided" in page.content.decode()
    assert browser.post("/console/application", COMPANY).status_code == 404
    assert not AuditEntry.objects.filter(action="tenant.apply_again").exists()


def test_a_decision_that_came_first_wins(browser: Client) -> None:
    tenant = confirmed(browser, "active")
    form = ApplicationForm(COMPANY)
    assert form.is_valid()
    with pytest.raises(Conflict):
        sign_ups.apply_again(form.application(), tenant_id=tenant.id)


@pytest.mark.django_db(transaction=True)
def test_a_decision_that_comes_during_a_correction_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = confirmed(Client(), "pending_approval")
    form, compute = ApplicationForm(COMPANY), screening.compute
    assert form.is_valid()

    def approve() -> None:
        tenant_status.approve(tenant_id=tenant.id, actor_user_id=None)
        connection.close()

    decision = threading.Thread(target=approve)

    def compute_during_the_decision(row: SignUp) -> list[screening.Flag]:
        decision.start()
        # Gives the approval time to take effect, unless a lock makes it wait for the correction.
        decision.join(0.5)
        return compute(row)

    monkeypatch.setattr(screening, "compute", compute_during_the_decision)
    sign_ups.apply_again(form.application(), tenant_id=tenant.id)
    decision.join()
    tenant.refresh_from_db()
    assert tenant.status == "active"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("company", "Asha\nhttps://evil.example"),
        ("company", "Asha www.evil.example"),
        ("company", "Asha \u202e"),
        ("address", "1 Road\r\nX"),
        ("city", "Pune\x07"),
    ],
)
def test_what_stands_in_mails_is_one_line_without_links(browser: Client, field: str, value: str) -> None:
    answer = sign_up(browser, **{field: value})
    assert answer.status_code == 400
    assert not SignUp.objects.exists()


def test_the_limit_counts_forms_that_were_accepted(browser: Client, settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {"signup": "1/h/ip"}
    cache.clear()
    for _ in range(3):
        assert sign_up(browser, pin_code="1").status_code == 400
    assert sign_up(browser).status_code == 302
    assert b"owner@infosys.com" in browser.get("/sign-up/sent").content
    assert sign_up(browser).status_code == 429
