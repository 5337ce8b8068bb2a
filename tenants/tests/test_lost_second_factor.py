"""A lost second factor: a recovery code replaces it. Without a code, both staff and the user's mailbox are needed."""

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from gateway.api.errors import Conflict, NotFound
from tenants.credentials import bearer_tokens
from tenants.credentials import log_in as lost_second_factor
from tenants.models import AuditEntry, OutboundMail, Tenant, User
from tests.threads import at_once

PASSWORD = "a long enough password"


@pytest.fixture
def person(tenant: Tenant) -> User:
    return User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)


def log_in(client: Client, email: str) -> str:
    """Log in with the password and return the next page."""
    return client.post("/login", {"login": email, "password": PASSWORD}, follow=True).content.decode()


def action_of(person: User) -> str:
    return reverse("admin:tenants_user_remove_second_factor", args=[person.pk])


def test_a_log_in_with_a_recovery_code_says_how_many_are_left(person: User) -> None:
    TOTP.activate(person, generate_totp_secret())
    codes = RecoveryCodes.activate(person).generate_codes()
    client = Client()
    assert "I have lost my phone and my codes" in log_in(client, person.email)
    page = client.post("/second-factor/authenticate/", {"code": codes[0]}, follow=True).content.decode()
    assert "You used a recovery code: 9 recovery codes are left." in page
    for code in codes[1:-1]:
        another = Client()
        log_in(another, person.email)
        page = another.post("/second-factor/authenticate/", {"code": code}, follow=True).content.decode()
    assert "1 recovery code is left." in page
    assert "Few codes are left." in another.get("/second-factor/").content.decode()


def test_staff_remove_a_lost_second_factor_and_the_mailbox_opens_the_account(
    person: User, staff: User
) -> None:
    RecoveryCodes.activate(person)
    token = bearer_tokens.open_session(person).token
    logged_in, desk = Client(), Client()
    logged_in.force_login(person)
    desk.force_login(staff)
    page = f"/admin/tenants/user/{person.pk}/change/"
    assert "Second factor lost" in desk.get(page).content.decode()
    answer = desk.post(
        action_of(person),
        {"_form_submitted": "on", "reason": "Called back at the application's number."},
        follow=True,
    )
    assert "They get a mail to choose a new password." in answer.content.decode()
    assert "Second factor lost" not in desk.get(page).content.decode()
    assert not Authenticator.objects.filter(user=person).exists()
    assert logged_in.get("/console").status_code == 302
    assert bearer_tokens.session_for(token) is None
    assert "Log out" not in log_in(Client(), person.email)
    mailed = OutboundMail.objects.get(to=person.email)
    assert "/password/reset" in mailed.text
    entry = AuditEntry.objects.get(action="user.second_factor_lost")
    assert (entry.tenant_id, entry.actor_user_id) == (person.tenant_id, staff.pk)
    assert entry.details["reason"] == "Called back at the application's number."


def test_the_removal_of_a_second_factor_concerns_that_person_alone(person: User, staff: User) -> None:
    others = [person, staff, User.objects.create_user("ravi@traders.example", PASSWORD)]
    lost = others.pop()
    for each in (*others, lost):
        TOTP.activate(each, generate_totp_secret())
        RecoveryCodes.activate(each)
    lost_second_factor.remove(user_id=lost.pk, reason="called", actor_user_id=staff.pk)
    desk = Client()
    desk.force_login(staff)
    for each, is_offered in ((others[0], True), (lost, False)):
        page = desk.get(f"/admin/tenants/user/{each.pk}/change/").content.decode()
        assert ("Second factor lost" in page) is is_offered
    lost.refresh_from_db()
    assert not lost.has_usable_password()
    assert list(OutboundMail.objects.values_list("to", flat=True)) == [lost.email]
    for each in others:
        each.refresh_from_db()
        assert each.check_password(PASSWORD)
        assert Authenticator.objects.filter(user=each).count() == 2
    assert Authenticator.objects.count() == 4


def test_nobody_removes_their_own_and_reviewers_remove_none(person: User, staff: User) -> None:
    RecoveryCodes.activate(staff)
    RecoveryCodes.activate(person)
    with pytest.raises(Conflict):
        lost_second_factor.remove(user_id=staff.pk, reason="x", actor_user_id=staff.pk)
    with pytest.raises(NotFound):
        lost_second_factor.remove(user_id=0, reason="x", actor_user_id=staff.pk)
    desk = Client()
    desk.force_login(staff)
    desk.post(action_of(person), {"_form_submitted": "on", "reason": " "})
    assert Authenticator.objects.count() == 2, "staff must say how they checked who asks"
    reviewer = User.objects.create_user("reviewer@gateway.example", PASSWORD, is_staff=True)
    desk.force_login(reviewer)
    desk.post(action_of(person), {"_form_submitted": "on", "reason": "x"})
    assert Authenticator.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_of_the_staff_remove_it_once(person: User, staff: User) -> None:
    RecoveryCodes.activate(person)

    def remove() -> None:
        lost_second_factor.remove(user_id=person.pk, reason="called", actor_user_id=staff.pk)

    assert [type(error) for error in at_once(remove, remove)] == [Conflict]
    assert OutboundMail.objects.filter(to=person.email).count() == 1


@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize("is_staff", [True, False])
@pytest.mark.parametrize("other", [None, "recovery_codes", "webauthn", "totp of another person"])
def test_only_staff_who_must_have_a_second_factor_keep_the_last_one(
    person: User, staff: User, settings: Settings, other: str | None, is_staff: bool, is_required: bool
) -> None:
    settings.STAFF_SECOND_FACTOR = is_required
    owner, stranger = (staff, person) if is_staff else (person, staff)
    own = Authenticator.objects.create(user=owner, type=Authenticator.Type.TOTP, data={})
    assert lost_second_factor.lacks_second_factor(stranger) is (is_required and stranger.is_staff)
    if other:
        of = stranger if "another" in other else owner
        Authenticator.objects.create(user=of, type=other.partition(" ")[0], data={})
    may_delete = not (is_staff and is_required) or other == "webauthn"
    assert lost_second_factor.SecondFactorAdapter().can_delete_authenticator(own) is may_delete
    assert not lost_second_factor.lacks_second_factor(owner)


def test_the_last_second_factor_of_staff_stays_and_the_page_says_what_comes_first(
    staff: User, settings: Settings
) -> None:
    settings.STAFF_SECOND_FACTOR = True
    TOTP.activate(staff, generate_totp_secret())
    client = Client()
    client.force_login(staff)
    client.post("/reauthenticate", {"password": PASSWORD})
    page = client.get("/second-factor/totp/deactivate/", follow=True).content.decode()
    assert "this is your last one" in page
    assert "Add a passkey" in page
    assert "From then on the password alone" not in page
    client.post("/second-factor/totp/deactivate/")
    assert Authenticator.objects.filter(user=staff, type=Authenticator.Type.TOTP).exists()
