"""Milliseconds of each console page for a business with 1,000,000 messages of 10,000 customers and 10,000 other rows.

Django's test client requests the pages. So the times include routing, session, queries and template, but no socket.
"""

import os
import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from benchmarks import growth
from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint

ROWS = 10_000
MESSAGES = int(os.environ.get("CONSOLE_MESSAGES", "1000000"))
"""The number of events, of deliveries and of messages, each spread evenly over ROWS customers."""
REPEATS = 15
MOST_MS = 300.0
AT_ONCE = 5_000


def run(harness: Harness) -> list[Result]:
    """Request each page several times. The first request is left out, because it compiles the template."""
    from gateway.clock import now
    from gateway.database import partitions

    today = now().date()
    for table in ("events", "webhook_deliveries", "messages"):
        partitions.make_from(table, today.fromordinal(today.toordinal() - 7 * (growth.WEEKS + 1)))
    own = business()
    target, _ = endpoint(own.tenant_id, "https://shop.example/hook")
    growth._load([own.tenant_id] * growth.TENANTS, [target] * growth.TENANTS, MESSAGES, salt="console")
    _set_contents(own)
    batch_id = _fill(own)
    paths = _paths(own, batch_id)
    # A person for each page, because together the requests would exceed the limit of a person.
    return [_measured(_browser(own.tenant_id, place), path) for place, path in enumerate(paths)]


def _fill(own: Business) -> str:
    """Create keys, numbers, templates, batches, audit entries, and one batch with failures. Returns the public id of
    this batch.
    """
    from gateway.clock import now
    from messaging.models import Batch, BatchItem, MessageTemplate
    from phone_numbers.models import BusinessAccount, PhoneNumber
    from tenants.models import ApiKey, AuditEntry

    account = BusinessAccount.objects.get(waba_id=own.waba_id)
    common: dict[str, Any] = {"tenant_id": own.tenant_id, "environment": "live"}
    document = '{"name":"n","language":"en","components":[{"type":"BODY","text":"Hi {{1}}, it is ready."}]}'
    sent = {"phone_number_id": own.phone_number_id, "total": 1, "rate_per_sec": 80, "completed_at": now()}
    known = {"account": account, "status": "APPROVED", "document": document, "changed_at": now(), **common}
    did = {"tenant_id": own.tenant_id, "action": "api_key.create", "target_type": "api_key"}
    every: list[list[Any]] = [
        [ApiKey(name=f"key {n}", prefix=f"wb_{n:08d}", key_hash=f"{n:064d}", **common) for n in range(ROWS)],
        [PhoneNumber(account=account, phone_number_id=f"3{n}", **common) for n in range(ROWS)],
        [MessageTemplate(template_id=f"{n}", name=f"t{n}", language="en", **known) for n in range(ROWS)],
        [Batch(**sent, **common) for _ in range(ROWS)],
        [AuditEntry(target_id=f"{n}", **did) for n in range(ROWS)],
    ]
    for rows in every:
        type(rows[0]).objects.bulk_create(rows, batch_size=AT_ONCE)
    batch = Batch.objects.order_by("-id").first()
    assert batch is not None
    answer = b'{"error":{"code":131030,"message":"Recipient phone number not in allowed list"}}'
    body = b'{"to":"919812345678","type":"template","template":{"name":"n","language":{"code":"en"}}}'
    BatchItem.objects.bulk_create(
        [BatchItem(batch=batch, idx=n, status="failed", body=body, response=answer) for n in range(ROWS)],
        batch_size=AT_ONCE,
    )
    Batch.objects.filter(pk=batch.pk).update(status="completed", total=ROWS, failed=ROWS)
    with cursor() as database:
        database.execute("VACUUM ANALYZE")
    return batch.public_id


def _set_contents(own: Business) -> None:
    """Set number, customer, kind and text of the loaded events and messages."""
    document = (
        """'{"contacts":[{"profile":{"name":"Asha ' || e.n %% 10000 || '"}}],"""
        """"message":{"type":"text","text":{"body":"Is order ' || e.n || ' ready?"}}}'"""
    )
    from gateway.clock import now
    from webhooks.models import Endpoint

    inbox = Endpoint.objects.create(
        tenant_id=own.tenant_id, kind="inbox", event_types=["*"], status="active", verified_at=now()
    )
    Endpoint.objects.filter(pk=inbox.pk).update(created_at=now() - timedelta(weeks=growth.WEEKS + 1))
    with cursor() as database:
        database.execute(
            "CREATE TEMP TABLE e AS SELECT id, payload_expires_on, substr(wamid, 7)::int AS n FROM events"
        )
        for table, more in (("events", ""), ("messages", ", type = 'text', event_id = e.id")):
            database.execute(
                f"UPDATE {table} t SET wa_id = '9198' || lpad((e.n %% {ROWS})::text, 8, '0'),"  # noqa: S608
                f" phone_number_id = %s{more} FROM e WHERE t.id = e.id",
                [own.phone_number_id],
            )
        database.execute(
            f"UPDATE event_payloads p SET body = convert_to({document}, 'UTF8') FROM e"  # noqa: S608
            " WHERE p.id = e.id AND p.expires_on = e.payload_expires_on",
            [],
        )


def _browser(tenant_id: UUID, place: int) -> Any:
    from django.conf import settings
    from django.test import Client

    from tenants.models import User

    client = Client(SERVER_NAME=urlsplit(settings.APP_URL).hostname or "localhost")
    client.force_login(User.objects.create_user(f"bench{place}@business.example", tenant_id=tenant_id))
    return client


def _paths(own: Business, batch_id: str) -> list[str]:
    from messaging import csv_batches
    from messaging.models import MessageTemplate

    rows = "".join(f"9198{n:08d},Asha {n}\n" for n in range(ROWS))
    stored = csv_batches.store_file(
        tenant_id=own.tenant_id, environment="live", name="a.csv", content=f"to,name\n{rows}".encode()
    )
    template = MessageTemplate.objects.order_by("name", "language", "id").first()
    assert template is not None
    chosen = urlencode({"from_": own.phone_number_id, "template": template.pk, "to": 0, "body_1": 1})
    return [
        "/console",
        "/console/messages",
        "/console/messages?wa_id=919800000042",
        "/console/conversations",
        "/console/conversations/rows",
        "/console/conversations/rows?q=91980000",
        f"/console/conversations/rows?q=order+{MESSAGES - 42}",
        f"/console/conversations/{own.phone_number_id}/919800000042",
        "/console/events",
        "/console/deliveries",
        "/console/deliveries?status=dead",
        "/console/batches",
        f"/console/batches/{batch_id}",
        f"/console/batches/{batch_id}/failed.csv",
        f"/console/batches/file/{stored.pk}?{chosen}",
        "/console/templates",
        "/console/templates?page=200",
        "/console/numbers",
        "/console/send",
        "/console/api-keys",
        "/console/requests",
        "/console/settings/audit",
        "/console/figures",
        "/console/ledger",
        "/console/search?q=ready",
        "/console/live",
    ]


def _measured(client: Any, path: str) -> Result:
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        answer = client.get(path)
        times.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, (path, answer.status_code)
        assert "conversations/" not in path or b"Asha" in answer.content, path
    found = percentiles(times[1:])
    assert found is not None
    shown = path.split("?")[0] if len(path) > 60 else path
    result = Result(shown, REPEATS, 1000 / found["p50"], unit="pages", percentiles=found)
    result.target = f"p95 ≤ {MOST_MS:,.0f} ms"
    result.expect(found["p95"] <= MOST_MS, f"p95 {found['p95']:.0f} ms, {len(answer.content):,} bytes")
    return result
