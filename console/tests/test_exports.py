"""Exports as CSV: their rows, access by role, and files that are written in the background."""

import csv
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import transaction
from django.http import HttpResponseBase
from django.test import Client

from console import exports
from console.tests import conversing
from console.tests.test_account import logged_call
from gateway import ids
from gateway.clock import IST, now
from gateway.database.bounded_walk import Page as BoundedPage
from messaging.models import MessageTemplate
from tenants import audit
from tenants.models import AuditEntry, Export, OutboundMail, Tenant, User
from tenants.team import members
from tests.browsers import browser_of, logged_in
from tests.one_of_each import one_of_each
from tests.threads import at_once
from webhooks.models import Figure, Message

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


def test_each_column_of_a_file_has_its_own_value(tenant: Tenant, browser: Client) -> None:
    at = now().replace(microsecond=0)

    def shown(seconds: int) -> str:
        return (at + timedelta(seconds=seconds)).astimezone(IST).isoformat()

    steps = ("accepted", "sent", "delivered", "read", "failed")
    batch_id, message_id = ids.uuid7(), ids.first_at(at)
    Message.objects.create(
        tenant_id=tenant.id,
        environment="live",
        key="wamid.1",
        month=ids.month_of(message_id),
        id=message_id,
        direction="outbound",
        user_id="IN.1",
        phone_number_id="77",
        type="template",
        template="order",
        template_language="en",
        batch_id=batch_id,
        error_code=131026,
        **{f"{step}_at": at + timedelta(seconds=place) for place, step in enumerate(steps, 1)},
    )
    assert table(browser.get("/console/messages/export.csv")) == [
        {
            "time": shown(0),
            "direction": "outbound",
            "customer": "IN.1",
            "phone_number_id": "77",
            "status": "failed",
            "error_code": "131026",
            "type": "template",
            "template": "order",
            "language": "en",
            **{f"{step}_at": shown(place) for place, step in enumerate(steps, 1)},
            "batch": ids.encode(ids.BATCH, batch_id),
            "message_id": "wamid.1",
        }
    ]
    call = logged_call(
        tenant, method="POST", route="/v1/messages", status=409, error_code="conflict", key_prefix="wb_live_ab",
        own_ms=1.26, upstream_ms=20.04,
    )  # fmt: skip
    (row,) = table(browser.get("/console/requests/export.csv?method=POST"))
    time = call.created_at.astimezone(IST).isoformat(timespec="seconds")
    assert list(row.values()) == [
        *(time, "POST", "/v1/messages", "409", "conflict", "wb_live_ab", "1.3", "20.0", call.public_id)
    ]
    assert table(browser.get("/console/requests/export.csv?method=GET")) == []


def test_the_figures_of_each_number_and_template_are_rows_newest_day_first(
    tenant: Tenant, browser: Client
) -> None:
    today = now().astimezone(IST)
    days = [today.replace(hour=12) - timedelta(days=1), today]
    for serial, day in enumerate(days):
        for place, measure in enumerate(("received", "sent", "delivered", "read", "failed")):
            Figure.objects.create(
                tenant_id=tenant.id, environment="live", hour=int(day.timestamp()) // 3600, phone_number_id="1001",
                template="order", direction="inbound" if measure == "received" else "outbound", measure=measure,
                value="", count=10 * serial + place,
            )  # fmt: skip
    assert [list(row.values()) for row in table(browser.get("/console/figures/export.csv"))] == [
        [f"{days[1]:%Y-%m-%d}", "1001", "order", "10", "11", "12", "13", "14"],
        [f"{days[0]:%Y-%m-%d}", "1001", "order", "0", "1", "2", "3", "4"],
    ]


def test_a_file_has_each_own_row_once_newest_first(
    tenant: Tenant, other_tenant: Tenant, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "PAGE", 2)
    made: dict[str, list[str]] = {"messages": [], "requests": [], "settings/audit": []}
    for owner in (tenant, other_tenant):
        made["messages"] += [conversing.outbound(owner) for _ in range(5)][: 5 * (owner == tenant)]
        made["requests"] += [logged_call(owner).public_id for _ in range(5)][: 5 * (owner == tenant)]
        for number in range(5):
            audit.record(action="team.role", target_type="user", target_id=number, tenant_id=owner.id)
    made["settings/audit"] = list("01234")
    # The audit log first: it also records the download of messages.
    columns = {"settings/audit": "target_id", "messages": "message_id", "requests": "request_id"}
    for path, column in columns.items():
        rows = table(browser.get(f"/console/{path}/export.csv"))
        assert [row[column] for row in rows] == made[path][::-1], path


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
    assert "It has 3 rows." in mail.text
    assert [row["message_id"] for row in table(browser.get(path))] == long[::-1]
    assert stranger.get(path).status_code == 404
    assert browser.get(f"/console/settings/audit/exports/{export.pk}").status_code == 404
    User.objects.filter(pk=export.user.pk).update(role="billing")
    assert browser.get(path).status_code == 403
    exports.write_waiting()
    assert OutboundMail.objects.count() == 1


@pytest.mark.parametrize(
    ("kind", "query", "title", "path"),
    [
        ("messages", "", "Messages", "/console/exports/"),
        ("requests", "", "Request log", "/console/exports/"),
        ("figures", "", "Figures", "/console/exports/"),
        ("audit", "", "Audit log", "/console/settings/audit/exports/"),
        ("customer", "919812345678", "Data of one customer", "/console/exports/"),
        ("account", "", "Data of the account", "/console/exports/"),
    ],
)
def test_the_mail_names_the_file_and_links_to_it(
    tenant: Tenant, browser: Client, kind: str, query: str, title: str, path: str
) -> None:
    owner = User.objects.get(tenant=tenant)
    export = Export.objects.create(tenant=tenant, user=owner, environment="live", kind=kind, query=query)
    exports.write(export.pk)
    sent = OutboundMail.objects.get()
    assert f'"{title}" of' in sent.text
    assert f"It has {Export.objects.get().rows} row" in sent.text
    assert sent.text.endswith(f"\n{settings.APP_URL}{path}{export.pk}")
    assert browser.get(f"{path}{export.pk}").status_code == 200


def test_a_file_has_the_newest_rows_up_to_the_maximum(
    browser: Client, long: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "in the background" in b"".join(browser.get("/console/messages/export.csv")).decode()
    monkeypatch.setattr(exports, "MOST_AT_ONCE", 3)
    assert len(table(browser.get("/console/messages/export.csv"))) == 3
    monkeypatch.setattr(exports, "MOST_ROWS", 2)
    browser.post("/console/exports", ASKED)
    exports.write_waiting()
    export = Export.objects.get()
    assert [row["message_id"] for row in table(browser.get(f"/console/exports/{export.pk}"))] == long[:0:-1]
    assert export.rows == 2


def test_a_file_that_is_written_in_the_background_has_the_rows_of_a_direct_download(
    browser: Client, long: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.post("/console/exports", ASKED)
    exports.write_waiting()
    written = table(browser.get(f"/console/exports/{Export.objects.get().pk}"))
    monkeypatch.setattr(exports, "MOST_AT_ONCE", 3)
    assert written == table(browser.get("/console/messages/export.csv?direction=outbound"))


def test_the_audit_log_names_who_took_a_list_of_customers_out(
    tenant: Tenant, long: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    person = browser_of(tenant, "read_only")
    direct, entries = "/console/messages/export.csv", AuditEntry.objects.filter(tenant_id=tenant.id)
    assert b"in the background" in person.get(direct).content
    person.get("/console/figures/export.csv")
    assert not entries.exists(), "no customer has left the console"
    monkeypatch.setattr(exports, "MOST_AT_ONCE", 3)
    for _ in range(2):
        person.get(direct)
    person.post("/console/exports", ASKED)
    Export.objects.update(rows=0)
    monkeypatch.setattr(exports, "RECORDED_EVERY", timedelta())
    person.get(direct)
    facts = {"kind": "messages", "environment": "live"}
    found = entries.order_by("id").values_list("action", "actor_user_id", "target_type", "details")
    who = User.objects.get(role="read_only").pk
    assert list(found) == [("data.export", who, target, facts) for target in ("list", "export", "list")]


def test_a_role_gets_no_file_of_a_list_that_it_does_not_open(tenant: Tenant, long: list[str]) -> None:
    browser_of(tenant, "billing").post("/console/exports", ASKED)
    browser_of(tenant, "agent").post("/console/exports", {"kind": "audit"})
    browser_of(tenant, "owner").post("/console/exports", {"kind": "passwords"})
    assert not Export.objects.exists()
    browser_of(tenant, "read_only").post("/console/exports", ASKED)
    assert Export.objects.get().kind == "messages"


@pytest.mark.parametrize("query", ["template=a%00", "template=a\0"], ids=["encoded", "plain"])
def test_a_filter_that_the_database_cannot_read_starts_no_file(browser: Client, query: str) -> None:
    answer = browser.post("/console/exports", {"kind": "figures", "query": query}, follow=True)
    assert "must not contain the character U+0000" in answer.content.decode()
    assert not Export.objects.exists()


def test_a_file_that_fails_stops_no_other(tenant: Tenant, long: list[str]) -> None:
    for role, kind in (("owner", "figures"), ("developer", "messages")):
        browser_of(tenant, role).post("/console/exports", {"kind": kind})
    Export.objects.filter(kind="figures").update(kind="of a later version")
    exports.write_waiting()
    assert list(Export.objects.order_by("id").values_list("rows", flat=True)) == [None, 3]


@pytest.fixture
def leaver(tenant: Tenant) -> User:
    return User.objects.create_user("ravi@traders.example", tenant=tenant, role="developer")


def removed(leaver: User, tenant: Tenant, browser: Client) -> None:
    assert browser.post(f"/console/team/people/{leaver.pk}/remove").status_code == 302
    assert not User.objects.filter(pk=leaver.pk).exists()


def moved_by_staff(leaver: User, tenant: Tenant, browser: Client) -> None:
    former = User.objects.get(pk=leaver.pk)
    leaver.tenant = None
    with transaction.atomic():
        members.change_by_staff(leaver, former=former, actor_user_id=None)
        User.objects.filter(pk=leaver.pk).update(tenant=None)


@pytest.mark.parametrize("leave", [removed, moved_by_staff])
def test_files_of_a_person_who_leaves_stay_and_the_links_of_open_ones_go_to_an_owner(
    tenant: Tenant, browser: Client, long: list[str], leaver: User, leave: Any
) -> None:
    owner = User.objects.get(tenant=tenant, role="owner")
    User.objects.filter(pk=owner.pk).update(time_zone="Asia/Tokyo")
    theirs = logged_in(leaver)
    for _ in range(2):
        theirs.post("/console/exports", ASKED)
        if not OutboundMail.objects.exists():
            exports.write_waiting()
    done, waiting = Export.objects.order_by("id")
    account = Export.objects.create(tenant=tenant, user=None, environment="live", kind="account", query="")
    leave(leaver, tenant, browser)
    exports.write_waiting()
    for export in (done, waiting):
        assert len(table(browser.get(f"/console/exports/{export.pk}"))) == 3
    assert table(browser.get(f"/console/exports/{waiting.pk}"))[0]["time"].endswith("+09:00")
    assert list(OutboundMail.objects.order_by("id").values_list("to", flat=True)) == [
        leaver.email,
        owner.email,
    ]
    assert Export.objects.get(pk=account.pk).rows
    assert not Export.objects.filter(user=leaver.pk).exists()


def test_a_person_who_leaves_while_the_file_is_written_gets_no_mail(
    tenant: Tenant, browser: Client, long: list[str], leaver: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in(leaver).post("/console/exports", ASKED)
    contents = exports._contents

    def removing(*of: Any) -> Iterator[tuple[int, bytes]]:
        yield from contents(*of)
        removed(leaver, tenant, browser)

    monkeypatch.setattr(exports, "_contents", removing)
    exports.write_waiting()
    assert OutboundMail.objects.get().to == User.objects.get(tenant=tenant, role="owner").email


def test_a_list_that_nobody_can_read_any_more_is_not_written(tenant: Tenant) -> None:
    Export.objects.create(tenant=tenant, user=None, environment="live", kind="messages", query="")
    exports.write_waiting()
    assert not Export.objects.exists()


def test_a_person_has_one_file_under_way(browser: Client, long: list[str]) -> None:
    for _ in range(2):
        browser.post("/console/exports", ASKED)
    assert Export.objects.count() == 1


def test_a_file_is_deleted_after_a_week(browser: Client, long: list[str]) -> None:
    browser.post("/console/exports", ASKED)
    exports.write_waiting()
    Export.objects.update(created_at=now() - exports.KEPT + timedelta(minutes=1))
    exports.write_waiting()
    assert Export.objects.exists()
    Export.objects.update(created_at=now() - exports.KEPT)
    exports.write_waiting()
    assert not Export.objects.exists()


def test_a_run_that_takes_long_leaves_the_other_files_to_the_next(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("owner", "developer"):
        browser_of(tenant, role).post("/console/exports", ASKED)
    queued: list[str] = []
    monkeypatch.setattr(exports, "enqueue", lambda name, **_: queued.append(name))
    monkeypatch.setattr(exports, "RUN_SECONDS", 0.0)
    exports.write_waiting()
    assert Export.objects.filter(rows__isnull=False).count() == 1
    assert queued == ["console.tasks.write_exports"]


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A message log of which the filter matches no row in fifty pages. The list has what each page appends to it."""
    pages: list[Any] = []

    def search_page(*_: Any, **__: Any) -> BoundedPage[Message]:
        pages.append(Export.objects.values_list("leased_until", flat=True).first())
        return BoundedPage([], UUID(int=1) if len(pages) < 50 else None)

    monkeypatch.setattr(exports, "search_page", search_page)
    return pages


def test_a_download_reads_a_bounded_number_of_pages(browser: Client, sparse: list[Any]) -> None:
    """Otherwise a filter that matches few rows would walk through years of messages in one request."""
    page = browser.get("/console/messages/export.csv?template=order").content.decode()
    assert "in the background" in page
    assert 11 <= len(sparse) <= 21


def test_a_file_whose_rows_are_far_apart_keeps_its_worker(
    browser: Client, sparse: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "PART_SECONDS", 0.0)
    browser.post("/console/exports", ASKED)
    exports.write_waiting()
    assert len(set(sparse)) == len(sparse) == 50, "each part renews the lease"
    export = Export.objects.get()
    assert (export.rows, export.parts.count()) == (0, 1)


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


def test_a_worker_that_another_has_replaced_writes_nothing_more(
    browser: Client, long: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.post("/console/exports", ASKED)
    export = Export.objects.get()
    contents = exports._contents

    def replaced(of: Export) -> Iterator[tuple[int, bytes]]:
        monkeypatch.setattr(exports, "_contents", contents)
        for part in contents(of):
            yield part
            Export.objects.filter(rows=None).update(leased_until=now())
            exports.write_waiting()

    monkeypatch.setattr(exports, "_contents", replaced)
    exports.write(export.pk)
    assert len(table(browser.get(f"/console/exports/{export.pk}"))) == 3
    assert OutboundMail.objects.count() == 1


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
