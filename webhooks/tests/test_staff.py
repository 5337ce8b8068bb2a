"""Staff on endpoints and deliveries: what they see, and what they do in a tenant's name, audited under their own."""

from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from tenants.models import AuditEntry, Tenant, User
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


def press(user: User, model: type[Model], name: str, key: UUID) -> Any:
    """Confirm an action's dialog."""
    browser = Client()
    browser.force_login(user)
    path = reverse(f"admin:webhooks_{model._meta.model_name}_{name}", args=[key])
    return browser.post(path, {"_form_submitted": "on"}, headers={"HX-Request": "true"})


@pytest.fixture
def failed(tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver) -> Delivery:
    """A delivery that failed; the receiver works again."""
    receiver.answer = lambda request: web.Response(
        status=500, text="no such <table>", headers={"X-Trace": "t"}
    )
    publish_one(tenant)
    dispatcher.run()
    receiver.answer = lambda request: web.Response()
    return Delivery.objects.get()


def test_a_delivery_shows_its_endpoint_and_what_the_receiver_said(staff: User, failed: Delivery) -> None:
    browser = Client()
    browser.force_login(staff)
    page = browser.get(reverse("admin:webhooks_delivery_change", args=[failed.pk])).content.decode()
    assert Endpoint.objects.get().url in page
    assert reverse("admin:webhooks_endpoint_change", args=[failed.endpoint_id]) in page
    assert reverse("admin:webhooks_event_change", args=[failed.event_id]) in page
    assert "no such &lt;table&gt;" in page
    assert "X-Trace: t" in page


def test_staff_send_again_verify_and_resume_under_their_own_name(
    staff: User, tenant: Tenant, failed: Delivery, receiver: Receiver
) -> None:
    Endpoint.objects.update(status="paused")
    assert press(staff, Endpoint, "resume", failed.endpoint_id)["HX-Redirect"]
    assert Endpoint.objects.get().status == "active"
    press(staff, Delivery, "send_again", failed.pk)
    assert Delivery.objects.get(replay_of=failed.pk).status == "delivered"
    pings = len(receiver.pings)
    press(staff, Endpoint, "verify", failed.endpoint_id)
    assert len(receiver.pings) == pings + 1
    done = AuditEntry.objects.filter(actor_user_id=staff.pk, tenant_id=tenant.id).order_by("id")
    assert list(done.values_list("action", flat=True)) == [
        "webhook_endpoint.resume",
        "webhook_delivery.replay",
        "webhook_endpoint.verify",
    ]


def test_who_may_only_look_may_not_act(tenant: Tenant, failed: Delivery, receiver: Receiver) -> None:
    support = User.objects.create_user("support@service.example", "a long enough password", is_staff=True)
    calls = len(receiver.received), len(receiver.pings)
    for model, name, key in (
        (Endpoint, "resume", failed.endpoint_id),
        (Endpoint, "verify", failed.endpoint_id),
        (Delivery, "send_again", failed.pk),
    ):
        assert press(support, model, name, key).status_code in (302, 403)
    assert (len(receiver.received), len(receiver.pings)) == calls
    assert not AuditEntry.objects.filter(actor_user_id=support.pk).exists()


def test_a_flows_refusal_is_told(staff: User, failed: Delivery, api: Api) -> None:
    Endpoint.objects.update(status="pending", verified_at=None)
    answer = press(staff, Endpoint, "resume", failed.endpoint_id)
    assert "HX-Redirect" not in answer
    assert "verify it first" in answer.content.decode()
    assert Endpoint.objects.get().status == "pending"
