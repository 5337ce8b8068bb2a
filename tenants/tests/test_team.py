"""The team of a tenant: invitations, roles, removal, and their races."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.test import Client

from gateway.api.errors import Conflict, Forbidden, NotFound
from gateway.clock import now
from tenants import audit, mail
from tenants.connected_apps import connections
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import ApiKey, AppConnection, AuditEntry, Invitation, OutboundMail, Tenant, User
from tenants.team import invitations, members
from tenants.tests.connected_apps import connection_of, tokens_of
from tests.browsers import logged_in
from tests.fixtures import Api, assert_error
from tests.threads import at_once

PASSWORD = "a brand new long password"


def person(tenant: Tenant, role: str, name: str | None = None) -> User:
    return User.objects.create_user(f"{name or role}@traders.example", PASSWORD, tenant=tenant, role=role)


@pytest.fixture
def owner(tenant: Tenant) -> User:
    return person(tenant, "owner")


@pytest.fixture
def browser(owner: User) -> Client:
    return logged_in(owner)


def link_in_last_mail() -> str:
    """The path of the link in the last mail."""
    return "/" + mail.links_in(OutboundMail.objects.latest("id").text)[0].split("/", 3)[3]


def said(answer: Any) -> str:
    text: str = answer.content.decode()
    return text


@pytest.mark.django_db
class TestInvitation:
    def test_an_invited_person_joins_with_the_role_and_logs_in(self, browser: Client, tenant: Tenant) -> None:
        sent = {"email": "Ravi@Traders.example", "role": "billing"}
        page = browser.post("/console/team", sent, follow=True)
        assert "on its way to ravi@traders.example" in said(page)
        assert "Waiting" in said(page)
        row = OutboundMail.objects.get()
        assert (row.to, "“Asha Traders”" in row.text, "Billing" in row.text) == (
            "ravi@traders.example",
            True,
            True,
        )
        link, guest = link_in_last_mail(), Client()
        assert not User.objects.filter(email=row.to).exists()
        assert "ravi@traders.example" in said(guest.get(link))
        for refused in ("short", "ravi@traders.example"):
            assert guest.post(link, {"password": refused}).status_code == 400
        assert "Log in" in said(guest.post(link, {"password": PASSWORD}))
        assert 'value="ravi@traders.example"' in said(guest.get("/login"))
        user = User.objects.get(email="ravi@traders.example")
        assert (user.tenant, user.role) == (tenant, "billing")
        assert guest.post("/login", {"login": user.email, "password": PASSWORD})["Location"] == "/console"
        for answer in (guest.get(link), guest.post(link, {"password": PASSWORD})):
            assert answer.status_code == 410
        actions = list(AuditEntry.objects.order_by("id").values_list("action", "actor_user_id"))
        assert actions == [("team.invite", User.objects.get(role="owner").pk), ("team.join", user.pk)]

    def test_the_daily_limit_of_the_audit_log_keeps_no_invited_person_out(
        self, browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        browser.post("/console/team", {"email": "ravi@traders.example", "role": "developer"})
        monkeypatch.setattr(audit, "MOST_A_DAY", 0)
        assert "Log in" in said(Client().post(link_in_last_mail(), {"password": PASSWORD}))
        assert User.objects.get(email="ravi@traders.example").tenant == tenant
        refused = browser.post("/console/team", {"email": "meera@traders.example", "role": "developer"})
        assert "which is the maximum" in said(refused)
        assert 'value="meera@traders.example"' in said(refused)

    def test_a_link_ends_with_its_day_its_successor_and_its_withdrawal(
        self, browser: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        browser.post("/console/team", {"email": "ravi@traders.example", "role": "owner"})
        first = link_in_last_mail()
        browser.post(f"/console/team/invitations/{Invitation.objects.open().get().id}/again")
        second = link_in_last_mail()
        assert Client().get(first).status_code == 410
        assert Client().get(second).status_code == 200
        assert Client().get(second + "x").status_code == 410
        browser.post(f"/console/team/invitations/{Invitation.objects.open().get().id}/withdraw")
        assert Client().post(second, {"password": PASSWORD}).status_code == 410
        browser.post("/console/team", {"email": "ravi@traders.example", "role": "owner"})
        third = link_in_last_mail()
        monkeypatch.setattr(invitations, "LIFETIME", timedelta(seconds=-1))
        assert Client().post(third, {"password": PASSWORD}).status_code == 410
        assert User.objects.count() == 1
        Invitation.objects.update(created_at=now() - timedelta(hours=25))
        assert "Expired" in said(browser.get("/console/team"))
        Invitation.objects.update(created_at=now() - timedelta(days=8))
        assert invitations.prune() == 3

    def test_only_the_owner_of_an_address_sees_that_it_has_an_account(
        self, browser: Client, other_tenant: Tenant
    ) -> None:
        elsewhere = person(other_tenant, "owner", "meena")
        page = browser.post("/console/team", {"email": elsewhere.email, "role": "developer"}, follow=True)
        assert "on its way" in said(page)
        answer = Client().post(link_in_last_mail(), {"password": PASSWORD})
        assert answer.status_code == 409
        assert "has an account already" in said(answer)
        elsewhere.refresh_from_db()
        assert elsewhere.tenant == other_tenant

    def test_a_member_is_not_invited_again(self, browser: Client, tenant: Tenant) -> None:
        member = person(tenant, "developer")
        answer = browser.post("/console/team", {"email": member.email, "role": "owner"})
        assert (answer.status_code, OutboundMail.objects.count()) == (400, 0)
        assert "belongs to your team already" in said(answer)

    def test_people_and_mails_of_a_business_are_bounded(
        self, browser: Client, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def invite(name: str) -> int:
            sent = {"email": f"{name}@traders.example", "role": "developer"}
            return int(browser.post("/console/team", sent).status_code)

        monkeypatch.setattr(members, "MOST_PEOPLE", 3)
        assert [invite("a"), invite("b"), invite("c")] == [302, 302, 400]
        Invitation.objects.filter(email="a@traders.example").update(created_at=now() - timedelta(hours=25))
        assert invite("d") == 302, "an invitation whose link is over takes no place"
        monkeypatch.setattr(members, "MOST_PEOPLE", 50)
        monkeypatch.setattr(invitations, "MAILS_A_DAY", 3)
        assert [invite("a"), invite("a")] == [302, 400], "a mail that is sent again counts"
        other = logged_in(person(other_tenant, "owner", "meena"))
        sent = {"email": "d@traders.example", "role": "developer"}
        assert other.post("/console/team", sent).status_code == 302

    def test_who_left_and_mails_of_yesterday_take_no_place(
        self, owner: User, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def invite(name: str) -> Invitation:
            return invitations.invite(
                tenant_id=tenant.id, email=f"{name}@t.example", role="agent", actor_user_id=owner.pk
            )

        User.objects.create_user("gone@traders.example", tenant=tenant, is_active=False)
        monkeypatch.setattr(members, "MOST_PEOPLE", 2)
        monkeypatch.setattr(invitations, "MAILS_A_DAY", 1)
        first = invite("a")
        with pytest.raises(Conflict, match="at most 2 people"):
            invite("b")
        Invitation.objects.filter(pk=first.pk).update(created_at=now() - timedelta(hours=23))
        monkeypatch.setattr(members, "MOST_PEOPLE", 3)
        with pytest.raises(Conflict, match="At most 1 invitations"):
            invite("b")
        Invitation.objects.filter(pk=first.pk).update(created_at=now() - timedelta(hours=25))
        assert invite("b").email == "b@t.example"

    @pytest.mark.parametrize("role", ["owner", "developer", "agent", "billing", "read_only"])
    def test_an_invitation_sent_again_has_the_same_address_and_role(
        self, owner: User, tenant: Tenant, role: str
    ) -> None:
        act: Any = {"tenant_id": tenant.id, "actor_user_id": owner.pk}
        other = invitations.invite(email="b@t.example", role="agent", **act)
        first = invitations.invite(email="a@t.example", role=role, **act)
        again = invitations.send_again(invitation_id=first.pk, **act)
        assert (again.email, again.role, again.invited_by) == ("a@t.example", role, owner)
        assert set(Invitation.objects.open()) == {again, other}
        invitations.withdraw(invitation_id=again.pk, **act)
        assert set(Invitation.objects.open()) == {other}
        entry = AuditEntry.objects.get(action="team.withdraw")
        assert entry.details == {"email": "a@t.example", "role": role}

    @pytest.mark.parametrize("status", ["pending_approval", "suspended"])
    def test_a_business_that_is_not_active_has_no_invitation_mailed(
        self, browser: Client, tenant: Tenant, status: str
    ) -> None:
        browser.post("/console/team", {"email": "ravi@traders.example", "role": "owner"})
        waiting = Invitation.objects.open().get()
        Tenant.objects.filter(pk=tenant.pk).update(status=status)
        invited = browser.post("/console/team", {"email": "friend@traders.example", "role": "owner"})
        again = browser.post(f"/console/team/invitations/{waiting.id}/again")
        assert (invited.status_code, again.status_code) == (403, 403)
        assert OutboundMail.objects.count() == 1

    def test_a_hostile_business_name_is_no_link_in_the_mail(self, browser: Client, tenant: Tenant) -> None:
        Tenant.objects.filter(pk=tenant.pk).update(name="x\n\nhttp://evil.example/ Log in:")
        browser.post("/console/team", {"email": "ravi@traders.example", "role": "owner"})
        row = OutboundMail.objects.get()
        assert "\n" not in row.subject
        assert 'href="http://evil' not in row.html


@pytest.mark.django_db
class TestMembers:
    def test_a_role_is_in_effect_at_the_next_request(self, browser: Client, tenant: Tenant) -> None:
        member = person(tenant, "developer")
        theirs, token = logged_in(member), Api(bearer_tokens.open_session(member).token)
        assert theirs.get("/console/messages").status_code == 200
        assert "Read only" in said(browser.get(f"/console/team/people/{member.pk}/role"))
        page = browser.post(f"/console/team/people/{member.pk}/role", {"role": "billing"}, follow=True)
        assert f"{member.email} has the role Billing" in said(page)
        assert theirs.get("/console/messages").status_code == 403
        assert_error(token.get("/v1/messages"), 403, "forbidden")
        assert browser.post(f"/console/team/people/{member.pk}/role", {"role": "king"}).status_code == 400
        entry = AuditEntry.objects.get(action="team.role")
        assert (entry.details["before"], entry.details["after"]) == (
            {"role": "developer"},
            {"role": "billing"},
        )

    def test_keys_made_with_a_key_of_a_member_are_the_members_when_that_key_has_ended(
        self, tenant: Tenant
    ) -> None:
        member = person(tenant, "developer", "ravi")
        create = partial(api_keys.create, environment="live", tenant=tenant)
        first = create(name="first", actor_user_id=member.pk)
        second = create(name="second", acting_key_id=first.row.id)
        ApiKey.objects.filter(pk=first.row.id).update(revoked_at=now())
        (left,) = api_keys.made_by(tenant_id=tenant.id, user_id=member.pk)
        assert left == second.row

    def test_a_removed_person_is_out_at_once_and_stays_in_the_audit_log(
        self, browser: Client, tenant: Tenant, owner: User
    ) -> None:
        member = person(tenant, "owner", "ravi")
        theirs, token = logged_in(member), Api(bearer_tokens.open_session(member).token)
        theirs.post("/console/team", {"email": "friend@traders.example", "role": "owner"})
        link = link_in_last_mail()
        assert "keep working" in said(browser.get(f"/console/team/people/{member.pk}/remove"))
        page = browser.post(f"/console/team/people/{member.pk}/remove", follow=True)
        assert "no longer has access" in said(page)
        assert theirs.get("/console").status_code == 302
        assert_error(token.get("/v1/tenant"), 401, "unauthorized")
        assert Client().get(link).status_code == 410, "what a removed person sent opens nothing"
        shown = said(browser.get("/console/settings/audit"))
        assert "ravi@traders.example (removed)" in shown
        assert "Our team" not in shown
        browser.post("/console/team", {"email": member.email, "role": "developer"})
        assert Client().post(link_in_last_mail(), {"password": PASSWORD}).status_code == 200

    def test_an_owner_removes_a_person_whom_staff_deactivated(self, browser: Client, tenant: Tenant) -> None:
        leaver = person(tenant, "developer", "ravi")
        assert "Deactivated" not in said(browser.get("/console/team"))
        User.objects.filter(pk=leaver.pk).update(is_active=False)
        page = said(browser.get("/console/team"))
        assert leaver.email in page
        assert "Deactivated" in page
        assert "no longer has access" in said(
            browser.post(f"/console/team/people/{leaver.pk}/remove", follow=True)
        )
        assert not User.objects.filter(pk=leaver.pk).exists()
        sent = browser.post("/console/team", {"email": leaver.email, "role": "developer"}, follow=True)
        assert "on its way" in said(sent)

    def test_mails_to_a_removed_person_go_to_another_owner(
        self, browser: Client, tenant: Tenant, owner: User
    ) -> None:
        member, accountant = person(tenant, "owner", "ravi"), "books@accountant.example"
        typed = member.email.title()
        Tenant.objects.filter(pk=tenant.pk).update(contact_email=typed, billing_email=typed)
        browser.post(f"/console/team/people/{member.pk}/remove")
        tenant.refresh_from_db()
        assert (tenant.contact_email, tenant.billing_email) == (owner.email, None)
        Tenant.objects.filter(pk=tenant.pk).update(billing_email=accountant)
        browser.post(f"/console/team/people/{person(tenant, 'developer').pk}/remove")
        tenant.refresh_from_db()
        assert (tenant.contact_email, tenant.billing_email) == (owner.email, accountant)

    def test_a_removal_ends_nothing_of_the_others(self, owner: User, tenant: Tenant) -> None:
        leaver, developer = person(tenant, "owner", "ravi"), person(tenant, "developer")
        for sender in (owner, leaver):
            invitations.invite(
                tenant_id=tenant.id, email=f"by-{sender.pk}@t.example", role="agent", actor_user_id=sender.pk
            )
        kept, _ = connection_of(tenant), tokens_of(leaver)
        Tenant.objects.filter(pk=tenant.pk).update(
            contact_email="office@t.example", billing_email="b@t.example"
        )
        members.remove(tenant_id=tenant.id, user_id=leaver.pk, actor_user_id=owner.pk)
        assert [row.invited_by for row in Invitation.objects.open()] == [owner]
        assert list(AppConnection.objects.all()) == [kept]
        [ended] = AuditEntry.objects.filter(action="connected_app.disconnect")
        assert (ended.tenant_id, ended.actor_user_id) == (tenant.id, owner.pk)
        assert (ended.details["name"], ended.details["reason"]) == ("Assistant", "member_removed")
        tenant.refresh_from_db()
        assert (tenant.contact_email, tenant.billing_email) == ("office@t.example", "b@t.example")
        assert User.objects.filter(pk=developer.pk).exists()

    def test_the_first_of_the_other_owners_gets_the_mails(self, tenant: Tenant) -> None:
        person(tenant, "developer")
        User.objects.create_user("gone@traders.example", tenant=tenant, role="owner", is_active=False)
        leaver, heir, youngest = (person(tenant, "owner", name) for name in ("ravi", "meena", "nila"))
        Tenant.objects.filter(pk=tenant.pk).update(contact_email="Ravi@traders.example")
        members.remove(tenant_id=tenant.id, user_id=leaver.pk, actor_user_id=youngest.pk)
        tenant.refresh_from_db()
        assert tenant.contact_email == heir.email

    @pytest.mark.parametrize(
        ("role", "bills"),
        [
            ("agent", None),
            ("developer", None),
            ("billing", "Ravi@traders.example"),
            ("owner", "Ravi@traders.example"),
        ],
    )
    def test_mails_to_an_owner_who_loses_the_role_go_to_another_owner(
        self, owner: User, tenant: Tenant, role: str, bills: str | None
    ) -> None:
        former = person(tenant, "owner", "ravi")
        typed = "Ravi@traders.example"
        Tenant.objects.filter(pk=tenant.pk).update(contact_email=typed, billing_email=typed)
        members.change_role(tenant_id=tenant.id, user_id=former.pk, role=role, actor_user_id=owner.pk)
        tenant.refresh_from_db()
        contact = typed if role == "owner" else owner.email
        assert (tenant.contact_email, tenant.billing_email) == (contact, bills)
        mails = {"contact_email": contact} | ({} if bills else {"billing_email": None})
        for entry in AuditEntry.objects.filter(action="team.role"):
            assert entry.details["after"] == {"role": role} | mails

    def test_a_role_takes_no_mails_that_the_person_did_not_get_by_the_former_role(
        self, owner: User, tenant: Tenant
    ) -> None:
        developer = person(tenant, "developer")
        addresses = {"contact_email": developer.email, "billing_email": developer.email}
        Tenant.objects.filter(pk=tenant.pk).update(**addresses)
        members.change_role(tenant_id=tenant.id, user_id=developer.pk, role="agent", actor_user_id=owner.pk)
        tenant.refresh_from_db()
        assert (tenant.contact_email, tenant.billing_email) == (developer.email, developer.email)

    def test_an_owner_who_loses_the_role_gets_it_back_by_no_invitation(
        self, owner: User, tenant: Tenant
    ) -> None:
        """The person may have invited a second mailbox of their own."""
        former = person(tenant, "owner", "ravi")
        own, other = (
            invitations.invite(tenant_id=tenant.id, actor_user_id=by.pk, email=email, role="owner")
            for by, email in ((former, "ravi2@t.example"), (owner, "a@t.example"))
        )
        for role in ("owner", "read_only"):
            assert set(Invitation.objects.open()) == {own, other}
            members.change_role(tenant_id=tenant.id, user_id=former.pk, role=role, actor_user_id=owner.pk)
        assert set(Invitation.objects.open()) == {other}
        with pytest.raises(invitations.InvitationLinkError):
            invitations.accept(invitations.link_for(own).rpartition("/")[2], password="a long new password")

    def test_the_same_role_again_is_no_change(self, owner: User, tenant: Tenant) -> None:
        for role in ("owner", "owner"):
            members.change_role(tenant_id=tenant.id, user_id=owner.pk, role=role, actor_user_id=owner.pk)
        assert not AuditEntry.objects.exists()

    def test_a_business_that_closes_loses_everybody_and_keeps_its_addresses(
        self, owner: User, tenant: Tenant, other_tenant: Tenant
    ) -> None:
        stays = person(other_tenant, "owner", "meena")
        User.objects.create_user("gone@traders.example", tenant=tenant, is_active=False)
        colleague = User.objects.create_user("s@service.example", tenant=tenant, is_staff=True)
        for actor in (owner, stays):
            assert actor.tenant is not None
            invitations.invite(
                tenant_id=actor.tenant.id, email="a@t.example", role="agent", actor_user_id=actor.pk
            )
        Tenant.objects.filter(pk=tenant.pk).update(contact_email=owner.email, billing_email=owner.email)
        assert members.remove_all(tenant_id=tenant.id, actor_user_id=None) == 3
        assert set(User.objects.values_list("email", "tenant")) == {
            (stays.email, other_tenant.pk),
            (colleague.email, None),
        }
        assert [row.tenant for row in Invitation.objects.open()] == [other_tenant]
        removed = AuditEntry.objects.filter(action="team.remove", tenant_id=tenant.id)
        assert [entry.details["email"] for entry in removed.order_by("id")] == [
            owner.email,
            "gone@traders.example",
            colleague.email,
        ]
        tenant.refresh_from_db()
        assert (tenant.contact_email, tenant.billing_email) == (owner.email, owner.email)

    def test_staff_who_are_removed_stay_staff(self, browser: Client, tenant: Tenant) -> None:
        colleague = User.objects.create_superuser(
            "s@service.example", PASSWORD, tenant=tenant, role="developer"
        )
        client = connections.register(name="Editor", redirect_uris=["https://a.example"], ip=None)
        connections.allow(
            client,
            user=colleague,
            tenant=tenant,
            redirect_uri="https://a.example",
            code_challenge="c" * 43,
            environment="live",
            scopes=connections.SCOPES,
            only_reads=False,
        )
        browser.post(f"/console/team/people/{colleague.pk}/remove")
        colleague.refresh_from_db()
        assert (colleague.tenant, colleague.is_staff) == (None, True)
        assert not AppConnection.objects.for_tenant(tenant.id).exists(), "it would act again after a return"

    def test_the_last_owner_stays_one(
        self, browser: Client, tenant: Tenant, owner: User, other_tenant: Tenant
    ) -> None:
        person(tenant, "developer")
        person(other_tenant, "owner", "elsewhere")
        User.objects.create_user("gone@traders.example", tenant=tenant, role="owner", is_active=False)
        for path, form in (("remove", {}), ("role", {"role": "developer"})):
            page = browser.post(f"/console/team/people/{owner.pk}/{path}", form, follow=True)
            assert "An account needs an owner" in said(page)
        owner.refresh_from_db()
        assert owner.role == "owner"
        path = f"/console/team/people/{owner.pk}/remove"
        listed = browser.get("/console/team").content.decode()
        assert "The only owner" in listed
        assert path not in listed
        person(tenant, "owner", "second")
        listed = browser.get("/console/team").content.decode()
        assert "The only owner" not in listed
        assert path in listed

    @pytest.mark.parametrize("user_id", ["999999", "99999999999999999999999"])
    def test_an_unknown_person_is_not_found(self, browser: Client, user_id: str) -> None:
        assert browser.get(f"/console/team/people/{user_id}/role").status_code == 404

    def test_the_page_shows_who_lacks_a_second_factor_and_offers_changes_to_owners_alone(
        self, browser: Client, tenant: Tenant, other_tenant: Tenant
    ) -> None:
        invitations.invite(
            tenant_id=other_tenant.id,
            email="friend@traders.example",
            role="owner",
            actor_user_id=person(other_tenant, "owner", "meena").pk,
        )
        developer = person(tenant, "developer")
        page = said(browser.get("/console/team"))
        assert "developer@traders.example" in page
        assert '<span class="badge ok">On</span>' not in page
        Authenticator.objects.create(user=developer, type=Authenticator.Type.RECOVERY_CODES, data={})
        assert '<span class="badge ok">On</span>' not in said(browser.get("/console/team"))
        Authenticator.objects.create(user=developer, type=Authenticator.Type.TOTP, data={})
        assert said(browser.get("/console/team")).count('<span class="badge ok">On</span>') == 1
        assert [name for name in ("meena@", "friend@") if name in page] == []
        assert "/remove" in page
        page = said(logged_in(developer).get("/console/team"))
        assert "owner@traders.example" in page
        assert "/remove" not in page
        assert '<form method="post" action="/console/team' not in page


def meet_after(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Make two threads meet right after a function. If a lock stops one, the other continues after half a second."""
    barrier, real = threading.Barrier(2), getattr(module, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=0.5)
        return result

    monkeypatch.setattr(module, name, wrapped)


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_two_owners_who_remove_each_other_leave_one(
        self, tenant: Tenant, owner: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        second = person(tenant, "owner", "second")
        meet_after(monkeypatch, members, "find")

        def remove(actor: User, other: User) -> Callable[[], None]:
            return lambda: members.remove(tenant_id=tenant.id, user_id=other.pk, actor_user_id=actor.pk)

        errors = at_once(remove(owner, second), remove(second, owner))
        assert [type(error) for error in errors] == [Forbidden]
        assert User.objects.filter(tenant=tenant, role="owner").count() == 1

    def test_a_withdrawn_invitation_is_not_accepted_as_well(
        self, tenant: Tenant, owner: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        invited = invitations.invite(
            tenant_id=tenant.id, email="ravi@traders.example", role="owner", actor_user_id=owner.pk
        )
        token = invitations.link_for(invited).rpartition("/")[2]
        meet_after(monkeypatch, invitations, "_end_open")

        def withdraw() -> None:
            invitations.withdraw(tenant_id=tenant.id, invitation_id=invited.id, actor_user_id=owner.pk)

        (error,) = at_once(withdraw, lambda: invitations.accept(token, password=PASSWORD))
        assert isinstance(error, invitations.InvitationLinkError | NotFound)

    def test_a_link_that_is_used_twice_at_once_makes_one_person(
        self, tenant: Tenant, owner: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        invited = invitations.invite(
            tenant_id=tenant.id, email="ravi@traders.example", role="owner", actor_user_id=owner.pk
        )
        token = invitations.link_for(invited).rpartition("/")[2]
        meet_after(monkeypatch, invitations, "find")
        errors = at_once(*[lambda: invitations.accept(token, password=PASSWORD)] * 2)
        assert [type(error) for error in errors] == [invitations.InvitationLinkError]
        assert User.objects.filter(email=invited.email).count() == 1

    def test_nobody_joins_a_business_whose_members_are_all_removed(
        self, tenant: Tenant, owner: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = Invitation.objects.create(tenant=tenant, email="ravi@traders.example", role="agent")
        token, barrier = invitations.link_for(row).rpartition("/")[2], threading.Barrier(2)

        def meet_before(work: Callable[..., Any], *given: Any) -> Any:
            with suppress(threading.BrokenBarrierError):
                barrier.wait(timeout=0.5)
            return work(*given)

        monkeypatch.setattr(invitations, "_accept", partial(meet_before, invitations._accept))
        monkeypatch.setattr(members, "_end_access", partial(meet_before, members._end_access))
        at_once(
            partial(members.remove_all, tenant_id=tenant.id, actor_user_id=None),
            partial(invitations.accept, token, password=PASSWORD),
        )
        assert not User.objects.filter(tenant=tenant).exists()

    def test_an_address_that_joins_two_businesses_at_once_joins_one(
        self, tenant: Tenant, other_tenant: Tenant, owner: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokens = []
        for business in (tenant, other_tenant):
            row = Invitation.objects.create(tenant=business, email="ravi@traders.example", role="owner")
            tokens.append(invitations.link_for(row).rpartition("/")[2])
        meet_after(monkeypatch, invitations, "find")
        errors = at_once(*(partial(invitations.accept, token, password=PASSWORD) for token in tokens))
        assert [type(error) for error in errors] == [invitations.AddressTakenError]
        assert User.objects.filter(email="ravi@traders.example").count() == 1

    def test_two_invitations_at_once_do_not_exceed_the_bound(
        self, tenant: Tenant, owner: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(members, "MOST_PEOPLE", 2)
        meet_after(monkeypatch, invitations, "_check_bounds")

        def invite(name: str) -> Callable[[], Any]:
            return lambda: invitations.invite(
                tenant_id=tenant.id, email=f"{name}@t.example", role="developer", actor_user_id=owner.pk
            )

        assert [type(error) for error in at_once(invite("a"), invite("b"))] == [Conflict]
        assert Invitation.objects.open().count() == 1
