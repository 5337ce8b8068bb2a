"""A row locked by a hung transaction stops no task. The task processes the other rows, and the locked row in a later
run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, models, transaction
from pytest_django import Settings

from billing import tasks as billing_tasks
from billing.error_isolation import HELD_AT_MOST, SomeFailed, each
from billing.models import BillingProfile, BillingSnapshot, Invoice
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist
from gateway import ids
from gateway.clock import now
from gateway.database import transactions
from gateway.database.statements import bulk_cursor
from gateway.database.transactions import concerns_all, is_lock_limit, limited_locks
from gateway.valkey import write_behind
from messaging import tasks as messaging_tasks
from messaging.models import Batch, KeptNotification, TemplateMirror
from phone_numbers import tasks as phone_tasks
from phone_numbers.models import BusinessAccount, ConnectSession, RedeemedCode
from tenants import tasks as tenants_tasks
from tenants.credentials import api_keys
from tenants.models import ApiKey, OutboundMail, Tenant
from tests.fixtures import Api
from webhooks import tasks as webhooks_tasks
from webhooks.models import Delivery, FigureChange, FigureDue, RetentionMove
from webhooks.tests.publishing import uuid_at

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "LOCK_WAIT", "300ms")


@contextmanager
def held(rows: models.QuerySet[Any]) -> Iterator[None]:
    """Lock rows in an idle transaction of another session. The transaction must still be open at the end.

    Postgres ends it after half a minute, so a task without a time-out fails the test instead of hanging.
    """
    with psycopg.connect(**{**connection.get_connection_params(), "autocommit": False}) as other:
        other.execute("SET LOCAL idle_in_transaction_session_timeout = '30s'")
        statement, values = rows.query.sql_with_params()
        assert other.execute(f"{statement} FOR UPDATE", values).fetchall()
        yield
        other.execute("SELECT")


@pytest.fixture
def two(tenant: Tenant, other_tenant: Tenant) -> tuple[Tenant, Tenant]:
    return tenant, other_tenant


def long_ago() -> datetime:
    return now() - timedelta(days=31)


def rename(tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(name="new")


def rename_in_transaction(tenant: Tenant) -> None:
    with transaction.atomic(), transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)


def rename_in_bulk(tenant: Tenant) -> None:
    with bulk_cursor() as cursor:
        cursor.execute("UPDATE tenants_tenant SET name = 'new' WHERE id = %s", [tenant.pk])


@pytest.mark.parametrize("write", [rename, rename_in_transaction, rename_in_bulk])
def test_a_statement_of_a_task_gives_up_waiting_for_a_row(write: Any, two: tuple[Tenant, Tenant]) -> None:
    with held(Tenant.objects.filter(pk=two[0].pk)):
        with limited_locks(), pytest.raises(OperationalError) as raised:
            write(two[0])
        assert is_lock_limit(raised.value)
        assert not concerns_all(raised.value)
        with limited_locks():
            write(two[1])
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",), "nothing of it stays in the session"


def test_billing_goes_on_with_the_others(
    two: tuple[Tenant, Tenant], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.BILLING_ENABLED = True
    settings.BILLING_FIRST_PERIOD = "2026-11"
    for each_tenant in two:
        BillingProfile.objects.create(tenant=each_tenant, **PROFILE, tax_id_type="gstin")
        connected(each_tenant, "1", (ist(2026, 11, 3), None))
    Tenant.objects.update(
        billing_status="trialing", trial_ends_at=ist(2026, 11, 1), created_at=ist(2026, 10, 1)
    )
    monkeypatch.setattr(billing_tasks, "now", lambda: FIRST_OF_DECEMBER)
    Tenant.objects.filter(pk=two[0].pk).update(billing_status="active")
    beginner = Tenant.objects.create(name="b", billing_status="trialing", trial_ends_at=ist(2026, 11, 20))
    with held(Tenant.objects.filter(pk__in=[two[0].pk, beginner.pk])):
        billing_tasks.run_billing()
        assert [snapshot.tenant_id for snapshot in BillingSnapshot.objects.all()] == [two[1].pk]
        assert Invoice.objects.filter(snapshot__tenant=two[1]).count() == 1
    beginner.delete()
    billing_tasks.run_billing()
    assert sorted(Invoice.objects.values_list("number", flat=True)) == ["WG/2627/000001", "WG/2627/000002"]


def test_a_row_that_every_item_needs_ends_a_step(two: tuple[Tenant, Tenant]) -> None:
    tried = []

    def act(item: int) -> None:
        tried.append(item)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '10ms'")
            rename(two[0])

    with held(Tenant.objects.filter(pk=two[0].pk)), pytest.raises(SomeFailed):
        each(range(100), act, step="x")
    assert len(tried) == HELD_AT_MOST


def test_keys_used_are_written_but_for_the_held_one(two: tuple[Tenant, Tenant]) -> None:
    keys = [api_keys.create(tenant=each_tenant, name="k", environment="live") for each_tenant in two]
    for made in keys:
        assert Api(made.key).get("/v1/tenant").status_code == 200
    write_behind.flush()
    rows = [ApiKey.objects.get(tenant=each_tenant) for each_tenant in two]
    with held(ApiKey.objects.filter(pk=rows[0].pk)):
        tenants_tasks.write_last_used()
        assert [ApiKey.objects.get(pk=row.pk).last_used_at is None for row in rows] == [True, False]


def test_mails_leave_beside_an_old_one_that_is_held(settings: Any, db: None) -> None:
    settings.EMAIL_MODE = "smtp"
    values = {"to": "a@b.example", "subject": "s", "text": "t", "html": "h"}
    old = [OutboundMail.objects.create(**values) for _ in range(2)]
    OutboundMail.objects.update(created_at=long_ago())
    OutboundMail.objects.create(**values, next_attempt_at=now())
    with held(OutboundMail.objects.filter(pk=old[0].pk)):
        tenants_tasks.send_waiting_mail()
        assert list(OutboundMail.objects.all()) == [old[0]]


def test_bodies_of_others_move(two: tuple[Tenant, Tenant]) -> None:
    with held(Tenant.objects.filter(pk=two[0].pk)):
        webhooks_tasks.move_bodies()
        assert [row.tenant_id for row in RetentionMove.objects.all()] == [two[1].pk]
    webhooks_tasks.move_bodies()
    assert RetentionMove.objects.count() == 2


def test_templates_of_others_are_read(two: tuple[Tenant, Tenant]) -> None:
    accounts = [
        BusinessAccount.objects.create(
            tenant=each_tenant, waba_id=str(number), environment="live", access_token="t"
        )
        for number, each_tenant in enumerate(two)
    ]
    with held(BusinessAccount.objects.filter(pk=accounts[0].pk)):
        messaging_tasks.start_due_template_syncs()
        assert [row.account_id for row in TemplateMirror.objects.all()] == [accounts[1].pk]


def test_old_batches_of_others_are_pruned(two: tuple[Tenant, Tenant]) -> None:
    batches = [
        Batch.objects.create(
            tenant=each_tenant,
            environment="live",
            phone_number_id="1",
            total=0,
            rate_per_sec=80,
            completed_at=now() - timedelta(days=400),
        )
        for each_tenant in two
    ]
    with held(Batch.objects.filter(pk=batches[0].pk)):
        messaging_tasks.prune_batches()
        assert list(Batch.objects.all()) == [batches[0]]


def test_old_codes_of_others_are_pruned(two: tuple[Tenant, Tenant]) -> None:
    codes = [
        RedeemedCode.objects.create(
            tenant=each_tenant, environment="live", code_hash="c", access_token="t", created_at=long_ago()
        )
        for each_tenant in two
    ]
    with held(RedeemedCode.objects.filter(pk=codes[0].pk)):
        phone_tasks.prune_redeemed_codes()
        assert list(RedeemedCode.objects.all()) == [codes[0]]


def test_old_connect_sessions_of_others_are_pruned_and_younger_ones_stay(
    two: tuple[Tenant, Tenant], settings: Settings
) -> None:
    def session(of: Tenant, days: int) -> ConnectSession:
        made_at = now() - timedelta(days=days)
        return ConnectSession.objects.create(
            id=uuid_at(made_at),
            tenant=of,
            environment="live",
            return_url="https://a.example",
            expires_at=made_at,
        )

    held_one, other = (session(each_tenant, settings.EVENT_METADATA_DAYS + 1) for each_tenant in two)
    younger = session(other.tenant, settings.EVENT_METADATA_DAYS - 1)
    with held(ConnectSession.objects.filter(pk=held_one.pk)):
        phone_tasks.prune_connect_sessions()
        assert set(ConnectSession.objects.all()) == {held_one, younger}


def test_old_notifications_beside_one_that_is_held_are_pruned(db: None) -> None:
    kept = [
        KeptNotification.objects.create(
            body=b"{}", body_sha256=str(number), reason="unroutable", received_at=long_ago()
        )
        for number in range(2)
    ]
    with held(KeptNotification.objects.filter(pk=kept[0].pk)):
        messaging_tasks.prune_kept_notifications()
        assert list(KeptNotification.objects.all()) == [kept[0]]


def test_old_answers_of_others_are_pruned(two: tuple[Tenant, Tenant]) -> None:
    Tenant.objects.update(retention_days=7)
    ten_days_ago = now() - timedelta(days=10)
    deliveries = [
        Delivery.objects.create(
            id=uuid_at(ten_days_ago),
            tenant_id=each_tenant.pk,
            environment="live",
            endpoint_id=each_tenant.pk,
            event_id=ids.first_at(ten_days_ago),
            event_type="message.inbound",
            answers={},
        )
        for each_tenant in two
    ]
    with held(Delivery.objects.filter(pk=deliveries[0].pk)):
        webhooks_tasks.prune_answers()
        assert list(Delivery.objects.filter(answers__isnull=False)) == [deliveries[0]]


def test_changes_beside_one_that_is_held_are_gathered(two: tuple[Tenant, Tenant]) -> None:
    hour = int(now().timestamp() // 3600) - 2
    for each_tenant in two:
        FigureChange.objects.create(tenant_id=each_tenant.pk, environment="live", hour=hour)
    with held(FigureChange.objects.filter(tenant_id=two[0].pk)):
        webhooks_tasks.roll_up_figures()
        assert [change.tenant_id for change in FigureChange.objects.all()] == [two[0].pk]


def test_figures_of_others_are_counted(two: tuple[Tenant, Tenant]) -> None:
    hour = int(now().timestamp() // 3600) - 2
    for each_tenant in two:
        FigureDue.objects.create(tenant_id=each_tenant.pk, environment="live", hour=hour, due_at=now())
    with held(FigureDue.objects.filter(tenant_id=two[0].pk)):
        webhooks_tasks.roll_up_figures()
        assert [due.tenant_id for due in FigureDue.objects.all()] == [two[0].pk]
