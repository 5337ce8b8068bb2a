"""Calls that the listener answers, in the request log and in the process's log."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway import ids
from gateway.api import access_log
from gateway.monitoring import logs, metrics
from gateway.request_log import recorder
from gateway.request_log.models import ApiRequest
from gateway.tests.test_answers import scrape
from tenants.credentials import api_keys
from tests.fixtures import wait_until
from web.tests.client import FrontClient

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _listening() -> Iterator[None]:
    access_log.register(recorder.record)
    yield
    access_log.clear_listeners()


def test_a_call_is_logged(front: FrontClient, key: api_keys.NewKey) -> None:
    stranger = front.ask("POST", "/v1/messages", b"{}", Authorization="Bearer wb_live_" + "x" * 40)
    answer = front.ask("POST", "/v1/messages", b"{}", Authorization=f"Bearer {key.key}")
    assert (stranger.status_code, answer.status_code) == (401, 400)
    request_id = ids.decode(ids.REQUEST, answer["X-Service-Request-Id"])
    wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
    (line,) = ApiRequest.objects.all()
    assert (line.id, line.tenant_id, line.environment) == (request_id, key.row.tenant_id, "live")
    assert (line.method, line.route, line.status, line.error_code, line.key_prefix) == (
        "POST",
        "/v1/messages",
        400,
        "invalid_request",
        key.row.prefix,
    )
    assert line.own_ms > 0


def test_a_refused_standing_is_logged(front: FrontClient, key: api_keys.NewKey) -> None:
    tenant = key.row.tenant
    assert tenant is not None
    tenant.status = "suspended"
    tenant.save()
    answer = front.ask("POST", "/v1/messages", b"{}", Authorization=f"Bearer {key.key}")
    assert answer.status_code == 403
    wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
    assert ApiRequest.objects.get().error_code == "tenant_suspended"


def test_django_and_the_listener_log_in_one_form(
    front: FrontClient, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(logs, "_stream", written)
    bearer = f"Bearer {key.key}"
    answers = [
        front.ask("POST", "/v1/messages", b"{}", Authorization=bearer),
        front.ask("GET", "/v1/webhooks/01a21577-c07f-7095-8e8d-6ff2f1eccaaa", Authorization=bearer),
    ]
    wait_until(lambda: ApiRequest.objects.count() == 2, "the calls were not logged")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line.keys() for line in lines] == [lines[0].keys()] * 2
    facts = ("request_id", "tenant_id", "method", "route", "status")
    assert [tuple(line[fact] for fact in facts) for line in lines] == [
        (answer["X-Service-Request-Id"], str(key.row.tenant_id), method, route, answer.status_code)
        for answer, method, route in zip(
            answers,
            ("POST", "GET"),
            ("/v1/messages", "/v1/webhooks/{endpoint_id}"),
            strict=True,
        )
    ]
    assert {type(line[figure]) for line in lines for figure in ("wb_ms", "meta_ms")} == {float}


@pytest.mark.parametrize("framing", ["chunked", "of declared length"])
@pytest.mark.parametrize("path", ["/v1/api-keys", "/v1/messages"], ids=["a view", "the listener"])
def test_the_time_in_which_a_body_arrives_is_not_the_services(
    front: FrontClient, key: api_keys.NewKey, settings: Any, path: str, framing: str
) -> None:
    parts = [b'{"a": "' + b"x" * 70_000, b"x" * 70_000, b'"}']

    def slowly() -> Iterator[bytes]:
        for part in parts:
            yield part
            time.sleep(0.75)

    length = {} if framing == "chunked" else {"Content_Length": str(sum(map(len, parts)))}
    metrics.flush()
    before = scrape(settings)["gateway_answer_own_seconds_sum"]
    answer = front.ask("POST", path, slowly(), Authorization=f"Bearer {key.key}", **length)
    assert answer.status_code == 400
    assert int(answer["X-Service-Processing-Ms"]) < 1_000
    wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
    assert ApiRequest.objects.get().own_ms < 1_000
    metrics.flush()
    assert scrape(settings)["gateway_answer_own_seconds_sum"] - before < 1


def test_a_request_that_is_refused_early_is_logged_by_the_pattern_of_its_path(
    front: FrontClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(logs, "_stream", written)
    assert front.ask("PUT", f"/upstream/flows/{'0' * 32}").status_code == 405
    refused = front.ask("POST", "/v25.0/106540352242922/messages?a=%00")
    assert (refused.status_code, refused["facebook-api-version"]) == (400, "v25.0")
    routes = [json.loads(line)["route"] for line in written.getvalue().splitlines()]
    assert routes == ["/upstream/flows/{endpoint_id}", "/{version}/{node}/messages"]
