"""Rows that are deleted by age still exist a minute before their retention ends, and are gone a minute after."""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any, cast
from uuid import uuid4

import pytest
from django.contrib.sessions.models import Session
from django.db.models import Model
from pytest_django import Settings

from billing.models import ProviderEvent
from billing.payments import provider_notices
from gateway import ids
from gateway.clock import now
from gateway.database import partitions
from messaging import known_nodes, retention
from messaging.batches import references
from messaging.conversations import read_marks
from messaging.models import (
    Batch,
    BatchFile,
    IdempotencyRecord,
    KeptNotification,
    KnownMedia,
    MessageReference,
    ReadMark,
    ScheduledMessage,
)
from phone_numbers import onboarding
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import ConnectSession, RedeemedCode
from tenants import device_login, mail
from tenants.connected_apps import connections
from tenants.credentials import bearer_tokens, log_in
from tenants.models import (
    ConnectedAppClient,
    ConsoleSession,
    DeviceLogin,
    Invitation,
    OutboundMail,
    SignUp,
    Tenant,
    User,
)
from tenants.signup import sign_ups
from tenants.team import invitations
from webhooks.events import retention as events
from webhooks.models import EventKey
from webhooks.tests.publishing import make, readable

pytestmark = pytest.mark.django_db

RETENTION_DAYS, METADATA_DAYS = 30, 400
MINUTE = timedelta(minutes=1)


def row(model: type[Model], column: str, *, of_tenant: bool = False, **members: Any) -> Callable[..., Model]:
    """Return a function that creates a row whose age counts from `column`. A callable member creates a unique value."""

    def create(tenant: Tenant, at: datetime) -> Model:
        owned = {"tenant_id": tenant.id, "environment": "live"} if of_tenant else {}
        made = {name: value() if callable(value) else value for name, value in members.items()}
        return model._default_manager.create(**{**owned, **made, column: at})

    return create


def clock_ahead(by: timedelta) -> type[datetime]:
    """A host's clock that is fast."""

    class Fast(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Fast":
            return cast("Fast", datetime.now(tz) + by)

    return Fast


def session(tenant: Tenant, at: datetime) -> Model:
    """Create a connect session. Its id contains the time of its creation."""
    return ConnectSession.objects.create(
        id=ids.first_at(at), tenant=tenant, environment="live", return_url="https://a.example", expires_at=at
    )


word = secrets.token_hex


def person() -> User:
    return User.objects.create_user(f"{word()}@b.example")


KINDS: dict[str, tuple[Callable[[], object], timedelta, Callable[..., Model]]] = {
    "kept notifications": (
        retention.prune_kept_notifications,
        timedelta(days=30),
        row(KeptNotification, "received_at", reason="malformed", body_sha256=word, body=b"x"),
    ),
    "idempotency keys": (
        retention.prune_idempotency_records,
        timedelta(hours=24),
        row(IdempotencyRecord, "started_at", of_tenant=True, key=word, path="/v1/messages", body_hash=b"x"),
    ),
    "files that nobody started": (
        retention.prune_batch_files,
        timedelta(days=1),
        row(BatchFile, "created_at", of_tenant=True, name="a.csv", content=b"x"),
    ),
    "batches": (
        retention.prune_batches,
        timedelta(days=RETENTION_DAYS),
        row(Batch, "completed_at", of_tenant=True, phone_number_id="1", total=1, rate_per_sec=80),
    ),
    "scheduled messages": (
        retention.prune_scheduled_messages,
        timedelta(days=RETENTION_DAYS),
        row(
            ScheduledMessage,
            "ended_at",
            of_tenant=True,
            phone_number_id="1",
            status="cancelled",
            send_at=now,
            body=b"",
        ),
    ),
    "references of messages": (
        references.prune_references,
        timedelta(days=30),
        row(
            MessageReference,
            "created_at",
            of_tenant=True,
            ref_hash=lambda: secrets.token_bytes(32),
            batch_id=uuid4,
            idx=0,
        ),
    ),
    "read marks": (
        read_marks.prune_read_marks,
        timedelta(days=METADATA_DAYS),
        row(
            ReadMark, "read_at", of_tenant=True, conversation=lambda: secrets.randbelow(2**60), through=uuid4
        ),
    ),
    "media": (
        known_nodes.prune_media,
        timedelta(days=31),
        row(KnownMedia, "noted_at", of_tenant=True, media_id=word, phone_number_id="1"),
    ),
    "connect sessions": (sessions.prune, timedelta(days=METADATA_DAYS), session),
    "redeemed codes": (
        onboarding.prune_redeemed_codes,
        timedelta(days=1),
        row(RedeemedCode, "created_at", of_tenant=True, code_hash=word, access_token="EAA"),
    ),
    "device log-ins": (
        device_login.prune_expired,
        timedelta(),
        row(
            DeviceLogin,
            "expires_at",
            device_code_hash=word,
            user_code=lambda: word(4),
            client_name="laptop",
        ),
    ),
    "clients without a connection": (
        connections.prune_expired,
        timedelta(days=1),
        row(ConnectedAppClient, "created_at", name="Editor", redirect_uris=[]),
    ),
    "clients that were connected": (
        connections.prune_expired,
        timedelta(days=365),
        row(ConnectedAppClient, "last_connected_at", name="Editor", redirect_uris=[]),
    ),
    "invitations": (
        invitations.prune,
        timedelta(days=7),
        lambda tenant, at: Invitation.objects.create(
            tenant=tenant, email=f"{word()}@b.example", role="agent", created_at=at
        ),
    ),
    "sign-ups that nobody confirmed": (
        sign_ups.prune_unconfirmed,
        timedelta(days=7),
        row(SignUp, "created_at", email=lambda: f"{word()}@b.example"),
    ),
    "keys of events": (
        events.prune_keys,
        timedelta(days=8),
        lambda tenant, at: EventKey.objects.create(tenant_id=tenant.id, dedupe_key=word(), created_at=at),
    ),
    "sessions of browsers": (
        log_in.prune_sessions,
        timedelta(),
        row(Session, "expire_date", session_key=lambda: word(20), session_data=""),
    ),
    "console tokens": (
        bearer_tokens.prune_expired,
        timedelta(),
        row(ConsoleSession, "expires_at", user=person, token_hash=word, password_fingerprint="x"),
    ),
    "applied notices of the payment provider": (
        provider_notices.prune,
        timedelta(days=30),
        row(ProviderEvent, "processed_at", provider="razorpay", event_id=word, type="x", body=b"{}"),
    ),
    "sent mails": (
        mail.deliver_waiting,
        timedelta(days=7),
        row(OutboundMail, "created_at", to="a@b.example", subject="x", text="x", html="", sent_at=now),
    ),
}


BY_CLOCK_OF_DATABASE = (
    "kept notifications",
    "idempotency keys",
    "batches",
    "scheduled messages",
    "references of messages",
    "read marks",
    "media",
    "keys of events",
    "sessions of browsers",
    "console tokens",
    "applied notices of the payment provider",
)
"""Other hosts compare these rows with the clock of the database, so the clock of the tasks' host must not count."""


@pytest.mark.parametrize(
    ("kind", "hours_fast"), [*((kind, 0) for kind in KINDS), *((kind, 25) for kind in BY_CLOCK_OF_DATABASE)]
)
def test_a_row_is_kept_exactly_as_long_as_promised(
    kind: str, hours_fast: int, tenant: Tenant, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EVENT_METADATA_DAYS = METADATA_DAYS
    Tenant.objects.filter(pk=tenant.pk).update(retention_days=RETENTION_DAYS)
    prune, keeps, create = KINDS[kind]
    moment = now()
    young, old = create(tenant, moment - keeps + MINUTE), create(tenant, moment - keeps - MINUTE)
    rows = type(old)._default_manager
    with monkeypatch.context() as patch:
        patch.setattr("gateway.clock.datetime", clock_ahead(timedelta(hours=hours_fast)))
        prune()
    assert [rows.filter(pk=each.pk).exists() for each in (young, old)] == [True, False]


def test_a_notice_of_the_payment_provider_that_was_not_applied_is_kept() -> None:
    received = now() - timedelta(days=60)
    ProviderEvent.objects.create(
        provider="razorpay", event_id="1", type="x", body=b"{}", received_at=received
    )
    provider_notices.prune()
    assert ProviderEvent.objects.count() == 1


def test_bodies_and_partitions_are_kept_by_the_clock_of_the_database(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    (event,) = make(tenant)
    before = partitions.through()
    monkeypatch.setattr("gateway.clock.datetime", clock_ahead(timedelta(days=1000)))
    assert readable(event) == [True]
    partitions.maintain()
    assert partitions.through() == before
    assert readable(event) == [True]
