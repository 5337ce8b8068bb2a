"""Key rotation as in docs/operations.md, and the figures on waiting batches and late mail."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.test import Client

from gateway.clock import now
from gateway.encryption import decrypt, encrypt
from messaging.batches.monitoring import waiting
from messaging.models import Batch
from tenants.credentials import bearer_tokens
from tenants.mail import given_up, oldest_due_age
from tenants.models import OutboundMail, Tenant, User
from tests.fixtures import Api

pytestmark = pytest.mark.django_db


def test_at_each_step_of_a_rotation_both_halves_of_the_processes_read_each_other(settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    for before, after in (([old], [old, new]), ([old, new], [new, old])):
        for writes, reads in ((before, after), (after, before)):
            settings.ENCRYPTION_KEYS = writes
            written = encrypt("EAAtoken", purpose="token")
            settings.ENCRYPTION_KEYS = reads
            assert decrypt(written, purpose="token") == "EAAtoken"


def test_at_each_step_of_a_new_secret_key_both_halves_of_the_processes_accept_a_session(
    settings: Any, staff: User
) -> None:
    old, new = "o" * 60, "n" * 60
    for before, after in (((old, []), (old, [new])), ((old, [new]), (new, [old])), ((new, [old]), (new, []))):
        for halves in ((before, after, before), (after, before, after)):
            client = Client()
            for settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS in halves:
                if "sessionid" not in client.cookies:
                    client.force_login(staff)
                assert client.get("/console")["Location"] == "/admin/"


def test_a_new_secret_key_keeps_sessions_and_ends_console_tokens(settings: Any, staff: User) -> None:
    first, second, token = Client(), Client(), bearer_tokens.open_session(staff).token
    first.force_login(staff)
    second.force_login(staff)
    former, settings.SECRET_KEY = settings.SECRET_KEY, "x" * 60
    settings.SECRET_KEY_FALLBACKS = [former]
    assert first.get("/console")["Location"] == "/admin/"
    assert Api(token).get("/v1/console/sessions/current").status_code == 401
    settings.SECRET_KEY_FALLBACKS = []
    assert first.get("/console")["Location"] == "/admin/", "its session was signed again with the new key"
    assert second.get("/console")["Location"].startswith("/login")


def test_a_batch_that_could_run_and_does_not_is_found(tenant: Tenant) -> None:
    long_ago = now() - timedelta(minutes=5)
    batch = Batch.objects.create(
        tenant=tenant, environment="live", phone_number_id="1", total=1, rate_per_sec=80, created_at=long_ago
    )
    Batch.objects.create(tenant=tenant, environment="live", phone_number_id="2", total=1, rate_per_sec=80)
    assert waiting() == (1, pytest.approx(300, abs=30))
    running = Batch.objects.create(
        tenant=tenant,
        environment="live",
        phone_number_id="3",
        total=1,
        rate_per_sec=80,
        created_at=long_ago,
        lease_token=uuid4(),
        lease_until=now() + timedelta(seconds=15),
    )
    assert waiting() == (1, pytest.approx(300, abs=30)), "a batch of another number runs"
    Batch.objects.filter(pk=running.pk).update(phone_number_id="1")
    assert waiting()[0] == 0, "the batch waits for the running batch of its number"
    Batch.objects.filter(pk=running.pk).update(lease_until=now() - timedelta(minutes=2))
    assert waiting() == (2, pytest.approx(300, abs=30)), "no process took over the expired lease"
    Batch.objects.update(completed_at=now())
    batches = Batch.objects.filter(pk=batch.pk)
    batches.update(completed_at=None, waiting_for="scheduled", send_at=now() + timedelta(hours=1))
    assert waiting() == (0, 0.0), "its time has not come"
    batches.update(created_at=now() - timedelta(days=2), send_at=now() - timedelta(minutes=2))
    assert waiting() == (1, pytest.approx(120, abs=30)), "no process noticed that its time has come"
    batches.update(waiting_for="number_not_connected", send_at=None)
    assert waiting() == (0, 0.0)
    batches.update(waiting_for="number_released")
    assert waiting()[0] == 1, "a runner has to end it"
    Tenant.objects.update(status="suspended")
    assert waiting() == (0, 0.0)


def test_mail_that_is_late_or_was_given_up_is_found() -> None:
    mail = {"to": "a@shop.example", "subject": "s", "text": "t", "html": "h"}
    OutboundMail.objects.create(**mail, sent_at=now())
    OutboundMail.objects.create(**mail, next_attempt_at=now() + timedelta(minutes=5))
    assert (given_up(), oldest_due_age()) == (0, 0.0)
    OutboundMail.objects.create(**mail)
    OutboundMail.objects.create(**mail, created_at=now() - timedelta(days=8))
    OutboundMail.objects.create(**mail, next_attempt_at=now() - timedelta(minutes=5))
    assert given_up() == 1
    assert 299 < oldest_due_age() < 330
