"""Exports as CSV: their rows, access by role, and files that are written in the background."""

import csv
import io

import pytest
from django.http import HttpResponseBase
from django.test import Client

from console import exports
from console.tests import conversing
from gateway.clock import now
from messaging.models import MessageTemplate
from tenants import audit
from tenants.models import Export, OutboundMail, Tenant, User
from tests.browsers import browser_of
from tests.one_of_each import one_of_each
from tests.threads import at_once
from webhooks.models import Figure

pytestmark = pytest.mark.django_db


def table(answer: HttpResponseBase) -> list[dict[str, str]]:
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/csv")
    assert answer["Content-Disposition"].startswith("attachment")
    return list(csv.DictReader(io.StringIO(b"".join(answer).decode())))


def test_messages_are_exported_by_the_filter_of_their_list_without_texts(
    tenant: Tenant, browser: Client, stranger: Client
) -> None:
    conversing.inbound(tenant, "a secret wish")
    wamid = conversing.outbound(tenant, "a secret wish")
    rows = table(browser.get("/console/messages/export.csv?direction=outbound"))
    assert [(row["direction"], row["message_id"]) for row in rows] == [("outbound", wamid)]
    assert rows[0]["time"].endswith("+05:30")
    everything = table(browser.get("/console/messages/export.csv"))
    assert len(everything) == 2
    assert "secret" not in str(everything)
    assert table(stranger.get("/console/messages/export.csv")) == []
    browser.post("/console/preferences", {"environment": "test"})
    assert table(browser.get("/console/messages/export.csv")) == []


def test_the_audit_log_names_people_and_no_cell_is_a_formula(tenant: Tenant, browser: Client) -> None:
    owner = User.objects.get(tenant=tenant)
    audit.record(
        action="tenant.update", target_type="tenant", target_id="=1+1", tenant_id=tenant.id, actor_user_id=owner.pk
    )  # fmt: skip
    row = table(browser.get("/console/settings/audit/export.csv"))[0]
    assert (row["who"], row["target_id"]) == (owner.email, "'=1+1")


def test_counts_are_those_of_the_number_or_template_that_is_chosen(tenant: Tenant, browser: Client) -> None:
    one_of_each(tenant)
    MessageTemplate.objects.update(environment="live")
    for number, template, count in (("1001", "order", 41), ("1001", "", 5), ("1002", "order", 7)):
        Figure.objects.create(
            tenant_id=tenant.id, environment="live", hour=int(now().timestamp()) // 3600, phone_number_id=number,
            template=template, direction="outbound", measure="sent", value="", count=count,
        )  # fmt: skip
    for query, counts in (
        ("", {"41", "5", "7"}),
        ("?days=7&phone_number_id=1001", {"41", "5"}),
        ("?days=7&template=order", {"41", "7"}),
        ("?days=7&phone_number_id=1001&template=order", {"41"}),
    ):
        rows = table(browser.get(f"/console/figures/export.csv{query}"))
        assert {row["sent"] for row in rows} == counts
        page = browser.get(f"/console/figures{query}").content.decode()
        assert f'<td class="amount">{sum(map(int, counts))}</td>' in page


def test_counts_and_calls_have_their_columns(browser: Client) -> None:
    for path in ("figures", "requests"):
        answer = browser.get(f"/console/{path}/export.csv")
        assert table(answer) == []
        assert b"," in b"".join(answer)


@pytest.fixture
def long(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three messages. A direct download, and each part of a file, can have at most two rows."""
    monkeypatch.setattr(exports, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(exports, "ROWS_OF_A_PART", 2)
    return [conversing.outbound(tenant) for _ in range(3)]


ASKED = {"kind": "messages", "query": "direction=outbound"}


def test_a_long_file_is_written_in_the_background_and_its_link_comes_by_mail(
    tenant: Tenant, browser: Client, stranger: Client, long: list[str]
) -> None:
    page = browser.get("/console/messages/export.csv?direction=outbound")
    assert "in the background" in page.content.decode()
    browser.post("/console/exports", ASKED)
    export = Export.objects.get()
    exports.write_waiting()
    mail = OutboundMail.objects.get()
    assert export.user is not None
    assert mail.to == export.user.email
    path = f"/console/exports/{export.pk}"
    assert path in mail.text
    assert [row["message_id"] for row in table(browser.get(path))] == long[::-1]
    assert stranger.get(path).status_code == 404
    assert browser.get(f"/console/settings/audit/exports/{export.pk}").status_code == 404
    User.objects.filter(pk=export.user.pk).update(role="billing")
    assert browser.get(path).status_code == 403
    exports.write_waiting()
    assert OutboundMail.objects.count() == 1


def test_a_role_gets_no_file_of_a_list_that_it_does_not_open(tenant: Tenant, long: list[str]) -> None:
    browser_of(tenant, "billing").post("/console/exports", ASKED)
    browser_of(tenant, "agent").post("/console/exports", {"kind": "audit"})
    browser_of(tenant, "owner").post("/console/exports", {"kind": "passwords"})
    assert not Export.objects.exists()
    browser_of(tenant, "read_only").post("/console/exports", ASKED)
    assert Export.objects.get().kind == "messages"


def test_a_person_has_one_file_under_way(browser: Client, long: list[str]) -> None:
    for _ in range(2):
        browser.post("/console/exports", ASKED)
    assert Export.objects.count() == 1


def test_a_file_is_deleted_after_a_week(browser: Client, long: list[str]) -> None:
    browser.post("/console/exports", ASKED)
    exports.write_waiting()
    Export.objects.update(created_at=now() - exports.KEPT)
    exports.write_waiting()
    assert not Export.objects.exists()


def test_a_file_that_a_worker_left_is_written_again(browser: Client, long: list[str]) -> None:
    browser.post("/console/exports", ASKED)
    export = Export.objects.get()
    export.parts.create(place=0, content=b"")
    Export.objects.update(leased_until=now() + exports.LEASE)
    exports.write_waiting()
    assert Export.objects.get().rows is None, "another worker writes it"
    Export.objects.update(leased_until=now())
    exports.write_waiting()
    assert len(table(browser.get(f"/console/exports/{export.pk}"))) == 3


@pytest.mark.django_db(transaction=True)
def test_two_workers_write_a_file_once(
    tenant: Tenant, long: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = browser_of(tenant)
    browser.post("/console/exports", ASKED)
    export = Export.objects.get()
    Export.objects.update(leased_until=None)
    assert at_once(*[lambda: exports.write(export.pk)] * 2) == []
    assert OutboundMail.objects.count() == 1
    assert len(table(browser.get(f"/console/exports/{export.pk}"))) == 3
