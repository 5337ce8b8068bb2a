"""No answer, log line, event, audit entry or admin page contains a token, a PIN or a code."""

import logging
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from gateway.clock import now
from phone_numbers import sync
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import AuditEntry, Tenant, User
from tests.fixtures import Api
from tests.simulated import RunningSimulator
from webhooks.models import Endpoint, Event, EventPayload

pytestmark = pytest.mark.django_db


def test_no_secret_leaves(
    api: Api,
    staff_api: Api,
    staff: User,
    tenant: Tenant,
    endpoint: Endpoint,
    simulator: RunningSimulator,
    caplog: pytest.LogCaptureFixture,
    settings: Any,
) -> None:
    caplog.set_level(logging.DEBUG)
    account = simulator.account()
    path = f"/v1/numbers/{account.phone_number_id}"
    signup = {
        "code": account.code,
        "waba_id": account.waba_id,
        "phone_number_id": account.phone_number_id,
        "pin": "271828",
    }
    answers = [
        api.post("/v1/numbers/embedded-signup", signup),
        api.post("/v1/numbers/connect", {"waba_id": account.waba_id, "access_token": account.access_token}),
        api.post(f"{path}/two-step", {"pin": "314159"}),
        api.post(f"{path}/deregister"),
        api.post(f"{path}/register", {"pin": "161803"}),
        api.post(f"{path}/register"),
        api.post(f"{path}/subscribe"),
        api.get(f"{path}/business-profile"),
        api.get(f"{path}?refresh=true"),
        api.get("/v1/numbers"),
        staff_api.get("/v1/admin/numbers"),
    ]
    stored_token = BusinessAccount.objects.get().access_token
    settings.META_GRAPH_URL = "http://127.0.0.1:9"
    answers.append(api.post("/v1/numbers/embedded-signup", {**signup, "code": "another-code-1618"}))
    answers.append(api.post(f"{path}/register", {"pin": "141421"}))
    lease = now()
    BusinessAccount.objects.update(sync_lease_until=lease)
    sync.run(account_id=BusinessAccount.objects.get().pk, lease=lease)
    settings.META_GRAPH_URL = simulator.url
    simulator.control("PATCH", "tokens", {"access_token": stored_token, "invalidated": True})
    answers.append(api.get(f"{path}/business-profile"))
    state.token_failed(waba_id=account.waba_id)

    browser = Client()
    browser.force_login(staff)
    for row in (BusinessAccount.objects.get(), PhoneNumber.objects.get()):
        model = row._meta.model_name
        answers.append(browser.get(reverse(f"admin:numbers_{model}_changelist")))
        answers.append(browser.get(reverse(f"admin:numbers_{model}_change", args=[row.pk])))

    said = {
        "answers": "".join(answer.content.decode() + str(answer.headers) for answer in answers),
        "logs": caplog.text + "".join(str(record.__dict__) for record in caplog.records),
        "events": "".join(
            [
                *(bytes(payload.body).decode() for payload in EventPayload.objects.all()),
                *(str(event) for event in Event.objects.values()),
            ]
        ),
        "audit": str(list(AuditEntry.objects.values())),
        "snapshots": str(list(PhoneNumber.objects.values_list("meta_snapshot", flat=True))),
    }
    assert [answer.status_code for answer in answers[-4:]] == [200] * 4
    assert "token.invalid" in said["events"]
    assert "sync_failed" in said["logs"]
    secrets = {
        "the stored token": stored_token,
        "the caller's token": account.access_token,
        "the code": account.code,
        "the code that failed": "another-code-1618",
        "the app secret": settings.META_APP_SECRET,
        **{f"PIN {pin}": pin for pin in ("271828", "314159", "161803", "141421")},
    }
    leaks = [
        (name, where) for name, secret in secrets.items() for where, text in said.items() if secret in text
    ]
    assert leaks == []
