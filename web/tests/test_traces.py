"""Traces: one trace from a caller's request through Meta and the event to the tenant's server."""

import re
from typing import Any

import orjson
import pytest
from aiohttp import web
from django.conf import settings as django_settings
from django.db import transaction

from gateway import ids
from gateway.clock import now
from gateway.database.statements import run
from gateway.monitoring import tracing
from gateway.upstream.notifications.normalise import normalise
from messaging.batches import runner
from messaging.models import Batch
from messaging.notifications.incoming import _Signed, _taking_in
from messaging.sending import journal, journal_replay
from messaging.sending.journal import Answered, Begun
from messaging.tasks import prune_media
from messaging.tests.conftest import _no_lingering_runner, account, connected_number
from messaging.tests.incoming import notification, number_of, signature_of, text_change
from messaging.tests.sending.test_send import text
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.collector import Collector, Exported
from tests.fixtures import Api
from tests.receiver import Received, Receiver
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator
from web.tests.client import FrontClient
from webhooks.delivery import dispatcher
from webhooks.models import Delivery, Event
from webhooks.tests.conftest import _no_lingering, endpoint
from webhooks.tests.delivering import publish_one

__all__ = ["_no_lingering", "_no_lingering_runner", "account", "endpoint"]

pytestmark = pytest.mark.django_db(transaction=True)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = f"00-{TRACE}-{PARENT}-01"
SENDING, UPSTREAM, DELIVERING = "POST /v1/messages", "POST messages", "deliver message.outbound"


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    return connected_number(tenant, simulator.account())


def known_number(tenant: Tenant) -> PhoneNumber:
    """A connected number that is unknown to the simulator."""
    return number_of(tenant, waba_id="100200300400500", phone_number_id="200300400500600")


def send(front: FrontClient, key: api_keys.NewKey, body: Any, **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {key.key}", **headers}
    answer = front.ask("POST", "/v1/messages", orjson.dumps(body), **sent)
    assert answer.status_code == 200, answer.content
    return answer


def traceparent_of(got: Received) -> tuple[str, str]:
    """Trace and span in the `traceparent` header that a receiver got."""
    found = re.fullmatch("00-([0-9a-f]{32})-([0-9a-f]{16})-0[13]", got.headers["traceparent"])
    assert found
    return found[1], found[2]


def under(parent: Exported, *spans: Exported) -> bool:
    return all((span.trace_id, span.parent_id) == (parent.trace_id, parent.span_id) for span in spans)


def assert_made_in(span: Exported, event: Event) -> None:
    """Check that the event names the span. In the last byte, one bit means that the trace is sampled, and another
    that the id is random.
    """
    assert event.traceparent is not None
    assert re.fullmatch(f"00-{span.trace_id}-{span.span_id}-0[13]", event.traceparent)


def test_a_send_is_one_trace_from_the_caller_to_the_customers_server(
    front: FrontClient,
    key: api_keys.NewKey,
    tenant: Tenant,
    number: PhoneNumber,
    endpoint: dict[str, Any],
    receiver: Receiver,
    traced: Collector,
) -> None:
    answer = send(front, key, text(number), traceparent=CALLER)
    receiver.answer = lambda request: web.Response(status=500)
    dispatcher.run()
    receiver.answer = lambda request: web.Response(text="ok")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()

    (serving,) = traced.wait_for(SENDING, trace_id=TRACE)
    (upstream,) = traced.wait_for(UPSTREAM, trace_id=TRACE)
    failed, delivered = traced.wait_for(DELIVERING, 2, trace_id=TRACE)
    assert (serving.parent_id, serving.kind) == (PARENT, "server")
    assert under(serving, upstream, failed, delivered)
    assert (upstream.kind, delivered.kind) == ("client", "producer")
    assert [traceparent_of(got) for got in receiver.wait_for(2)] == [
        (TRACE, failed.span_id),
        (TRACE, delivered.span_id),
    ]
    assert (failed.is_error, delivered.is_error, serving.is_error) == (True, False, False)
    assert serving.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/v1/messages",
        "gateway.request.id": answer["X-Service-Request-Id"],
        "gateway.tenant.id": str(tenant.id),
        "gateway.environment": "live",
    }
    envelope = receiver.received[0].json
    assert "traceparent" not in orjson.dumps(envelope).decode()
    assert [span.attributes["gateway.delivery.attempt"] for span in (failed, delivered)] == [1, 2]
    assert failed.attributes["error.type"] == "http_5xx"
    assert delivered.attributes["gateway.event.id"] == envelope["id"]
    assert delivered.resource["service.name"] == django_settings.SERVICE_NAME


def test_a_send_with_a_key_is_traced_too(
    front: FrontClient, key: api_keys.NewKey, number: PhoneNumber, traced: Collector
) -> None:
    send(front, key, text(number), traceparent=CALLER, Idempotency_Key="once")
    (serving,) = traced.wait_for(SENDING, trace_id=TRACE)
    assert_made_in(serving, Event.objects.get())


@pytest.mark.parametrize("header", [None, "", "nonsense", f"00-{'0' * 32}-{PARENT}-01", "00-" + "z" * 500])
def test_without_a_callers_trace_one_begins(
    front: FrontClient, key: api_keys.NewKey, number: PhoneNumber, traced: Collector, header: str | None
) -> None:
    send(front, key, text(number), **({} if header is None else {"traceparent": header}))
    (serving,) = traced.wait_for(SENDING)
    (upstream,) = traced.wait_for(UPSTREAM)
    assert serving.parent_id == ""
    assert under(serving, upstream)
    assert_made_in(serving, Event.objects.get())


def test_a_caller_that_does_not_sample_is_followed(
    front: FrontClient, key: api_keys.NewKey, number: PhoneNumber, traced: Collector
) -> None:
    """The caller's trace id still reaches the tenant's server, but nothing is exported."""
    send(front, key, text(number), traceparent=CALLER[:-1] + "0")
    stored = Event.objects.get().traceparent
    assert stored is not None
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", stored)
    send(front, key, text(number))
    traced.wait_for(SENDING)
    assert {span.trace_id for span in traced.spans}.isdisjoint({TRACE})


def test_while_traces_are_off_a_callers_trace_is_not_kept(
    front: FrontClient,
    key: api_keys.NewKey,
    number: PhoneNumber,
    endpoint: dict[str, Any],
    receiver: Receiver,
) -> None:
    assert not tracing.is_on()
    send(front, key, text(number), traceparent=CALLER)
    dispatcher.run()
    (got,) = receiver.wait_for(1)
    assert "traceparent" not in {name.lower() for name in got.headers}
    assert Event.objects.get().traceparent is None


def test_a_stored_trace_is_not_sent_once_traces_are_off(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    event_id = publish_one(tenant)
    Event.objects.filter(id=event_id).update(traceparent=CALLER)
    dispatcher.run()
    (got,) = receiver.wait_for(1)
    assert "traceparent" not in {name.lower() for name in got.headers}


def test_meta_gets_no_trace_headers(
    front: FrontClient, key: api_keys.NewKey, tenant: Tenant, graph: ScriptedGraph, traced: Collector
) -> None:
    number = known_number(tenant)
    answer = {"contacts": [{"wa_id": "1"}], "messages": [{"id": "wamid.1"}]}
    graph.answers("POST", f"/{number.phone_number_id}/messages", answer)
    send(front, key, text(number), traceparent=CALLER)
    traced.wait_for(UPSTREAM)
    (call,) = graph.received
    assert not {name for name in call.headers if name.startswith("trace") or TRACE in call.headers[name]}


def test_a_notification_begins_a_trace(
    front: FrontClient, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, traced: Collector
) -> None:
    number = known_number(tenant)
    body = notification((number.account.waba_id, [text_change(number.phone_number_id, "wamid.1", "wamid.2")]))
    signature = signature_of(body, django_settings.META_APP_SECRET)
    assert front.ask("POST", "/upstream/webhook", body, X_Hub_Signature_256=signature).status_code == 200
    dispatcher.run()
    (serving,) = traced.wait_for("POST /upstream/webhook")
    deliveries = traced.wait_for("deliver message.inbound", 2, trace_id=serving.trace_id)
    assert under(serving, *deliveries)
    assert {traceparent_of(got) for got in receiver.wait_for(2)} == {
        (serving.trace_id, each.span_id) for each in deliveries
    }


def test_notifications_that_are_written_together_keep_their_traces(tenant: Tenant, traced: Collector) -> None:
    number = known_number(tenant)
    taken, expected = [], []
    for place in range(2):
        body = notification((number.account.waba_id, [text_change(number.phone_number_id, f"wamid.{place}")]))
        with tracing.span("request"):
            taken.append(_Signed(body, normalise(body).changes, ("live",)))
            expected.append(tracing.current())
    with transaction.atomic():
        assert run(_taking_in(taken)) == [True, True]
    assert list(Event.objects.order_by("wamid").values_list("traceparent", flat=True)) == expected
    assert len(set(expected)) == 2


def test_every_message_of_a_batch_is_under_the_batchs_trace(
    api: Api,
    number: PhoneNumber,
    endpoint: dict[str, Any],
    receiver: Receiver,
    traced: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    messages = [
        {"to": f"+91980000100{place}", "type": "text", "text": {"body": "Hello"}} for place in range(3)
    ]
    made = api.post(
        "/v1/messages/batch", {"from": number.phone_number_id, "messages": messages}, traceparent=CALLER
    )
    assert made.status_code == 202, made.content
    runner.run()
    assert Batch.objects.get().status == Batch.Status.COMPLETED
    dispatcher.run()
    (serving,) = traced.wait_for("POST /v1/messages/batch", trace_id=TRACE)
    (running,) = traced.wait_for("run batch", trace_id=TRACE)
    assert under(serving, running)
    assert under(running, *traced.wait_for(UPSTREAM, 3, trace_id=TRACE))
    assert under(running, *traced.wait_for(DELIVERING, 3, trace_id=TRACE))
    assert under(running, *traced.wait_for("deliver batch.completed", trace_id=TRACE))
    assert {traceparent_of(got)[0] for got in receiver.wait_for(4)} == {TRACE}


def test_a_send_that_its_process_did_not_record_keeps_its_trace(
    tenant: Tenant, number: PhoneNumber, traced: Collector, settings: Any, tmp_path: Any
) -> None:
    settings.DATA_DIR = tmp_path
    for place, traceparent in enumerate((CALLER, None)):
        slot = journal._create()
        slot.begin(
            Begun(
                event_id=ids.uuid7(),
                tenant_id=tenant.id,
                environment="live",
                waba_id=number.account.waba_id,
                phone_number_id=number.phone_number_id,
                digits=number.digits,
                sent=b"{}",
                idempotency_key=None,
                traceparent=traceparent,
            )
        )
        slot.answered(Answered(200, b'{"messages":[{"id":"wamid.%d"}]}' % place, 200, {}, b""))
        slot.close(remove=False)
    assert journal_replay.replay()
    assert set(Event.objects.values_list("traceparent", flat=True)) == {CALLER, None}


def test_a_tasks_run_is_a_trace_of_its_own(traced: Collector) -> None:
    prune_media.apply()
    (ran,) = traced.wait_for("messaging.tasks.prune_media")
    assert (ran.parent_id, ran.kind, ran.is_error) == ("", "consumer", False)


def test_spans_hold_no_content_no_credentials_and_no_addresses(
    front: FrontClient,
    key: api_keys.NewKey,
    tenant: Tenant,
    api: Api,
    graph: ScriptedGraph,
    receiver: Receiver,
    traced: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Covers requests that succeed, fail and are rejected, outbound and inbound."""
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    number = known_number(tenant)
    hidden = {
        "the message's text": "Paracetamol 500",
        "the customer": "919812345678",
        "the number": number.digits,
        "the API key": key.key,
        "the upstream's token": number.account.access_token,
        "the endpoint's address": "s3cr3t-path",
        "the endpoint's header": "s3cr3t-header",
        "the message's id": "wamid.HBgMOTE5ODEyMzQ1Njc4",
        "the upstream's error": "Recipient is unhappy",
    }
    url = "/".join([receiver.url, hidden["the endpoint's address"]])
    made = api.post(
        "/v1/webhooks", {"url": url, "headers": {"Authorization": hidden["the endpoint's header"]}}
    )
    assert made.status_code == 201, made.content
    hidden["the endpoint's secret"] = made.json()["secret"]
    path = f"/{number.phone_number_id}/messages"
    body = text(number, text={"body": hidden["the message's text"]})
    sent = {"Authorization": f"Bearer {key.key}"}

    graph.answers("POST", path, {"messages": [{"id": hidden["the message's id"]}]})
    assert front.ask("POST", "/v1/messages", orjson.dumps(body), **sent).status_code == 200
    graph.script.clear()
    graph.answers(
        "POST", path, {"error": {"message": hidden["the upstream's error"], "code": 131026}}, status=400
    )
    assert front.ask("POST", "/v1/messages", orjson.dumps(body), **sent).status_code == 400
    graph.script.clear()
    graph.answers("POST", path, b"<html>Paracetamol 500", content_type="text/html")
    assert front.ask("POST", "/v1/messages", orjson.dumps(body), **sent).status_code == 502
    for asked in ("/v1/messages", f"/v1/numbers/{hidden['the customer']}", f"/{hidden['the customer']}"):
        front.ask("GET", f"{asked}?customer={hidden['the customer']}", b"", **sent)
    change = text_change(
        number.phone_number_id, hidden["the message's id"], body=hidden["the message's text"]
    )
    notified = notification((number.account.waba_id, [change]))
    signature = signature_of(notified, django_settings.META_APP_SECRET)
    assert front.ask("POST", "/upstream/webhook", notified, X_Hub_Signature_256=signature).status_code == 200
    receiver.answer = lambda request: web.Response(status=500, text=hidden["the customer"])
    message = {"to": hidden["the customer"], "type": "text", "text": body["text"]}
    api.post("/v1/messages/batch", {"from": number.phone_number_id, "messages": [message]})
    runner.run()
    dispatcher.run()
    with pytest.raises(ValueError, match="Paracetamol"), tracing.span("broken"):
        raise ValueError(body)

    traced.wait_for("deliver message.inbound")
    traced.wait_for(DELIVERING, 2)
    traced.wait_for(UPSTREAM, 4)
    (broken,) = traced.wait_for("broken")
    assert broken.attributes == {"error.type": "ValueError"}
    for span in traced.spans:
        for what, value in hidden.items():
            assert value not in span.text, f"{what} is in the span {span.name}"
