"""The Cloud API front: Graph calls with a gateway key have the effect of `/v1` calls, on the tenant's own ids only."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError, connection
from django.test import Client
from django.urls import resolve
from psycopg_pool import PoolTimeout
from pytest_django import Settings

from gateway.api import access_log, limits
from gateway.api.access_log import FinishedCall
from gateway.api.errors import ServiceError, error_reply
from gateway.api.limits import Bulkhead
from gateway.clock import now
from gateway.database import statements
from messaging import known_nodes
from messaging.cloud_api import errors
from messaging.models import KnownMedia, TemplateMirror
from messaging.tests.conftest import connected_number
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import AuditEntry, Tenant
from tests.fixtures import Api, UnreadableBody
from tests.pages import page
from tests.receiver import Receiver
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint, Event
from webhooks.requests import verify_ping

pytestmark = pytest.mark.django_db(transaction=True)

CUSTOMER = "919812345678"
TEXT = {"messaging_product": "whatsapp", "to": CUSTOMER, "type": "text", "text": {"body": "Hello"}}


def error_of(answer: Any, status: int, code: int, subcode: int | None = None) -> dict[str, Any]:
    """Check the shape of a Graph error that comes from Meta or from the service. A header names the source."""
    body = answer.json()
    assert answer.status_code == status, body
    assert set(body) == {"error"}
    assert {"message", "type", "code", "fbtrace_id"} <= set(body["error"])
    error: dict[str, Any] = body["error"]
    assert (error["code"], error.get("error_subcode")) == (code, subcode), error
    is_ours = "gateway_code" in error.get("error_data", {})
    assert answer["X-Service-Error-Source"] == ("whabuzz" if is_ours else "meta")
    return error


def sent_bodies(simulator: RunningSimulator, number: PhoneNumber) -> list[dict[str, Any]]:
    rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=1000")["data"]
    return [orjson.loads(row["body"]) for row in reversed(rows) if row["path"].endswith("/messages")]


class TestCredentials:
    def test_a_key_is_taken_in_each_form(self, number: PhoneNumber, key: api_keys.NewKey) -> None:
        path = f"/v25.0/{number.phone_number_id}?fields=id"
        for headers in ({"Authorization": f"Bearer {key.key}"}, {"X-API-Key": key.key}):
            assert Client().get(path, headers=headers).json()["id"] == number.phone_number_id
        assert Client().get(f"{path}&access_token={key.key}").json()["id"] == number.phone_number_id


class TestAdmission:
    """A caller is checked by the headers, before its body can occupy a thread or memory."""

    @pytest.mark.parametrize("refused", ["unknown_key", "suspended", "rate"])
    def test_a_refused_callers_body_is_never_read(
        self,
        api: Api,
        tenant: Tenant,
        number: PhoneNumber,
        settings: Settings,
        refused: str,
    ) -> None:
        headers, status, code = api.headers, 403, 131031
        if refused == "unknown_key":
            headers, status, code = {"Authorization": f"Bearer wb_live_{'x' * 40}"}, 401, 190
        elif refused == "suspended":
            Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
        else:
            settings.API_RATE_BURST, settings.API_RATE_PER_SECOND = 1, 0.001
            status, code = 429, 130429
            api.get(f"/v25.0/{number.phone_number_id}/subscribed_apps")
        unread: Any = {"wsgi.input": UnreadableBody(), "CONTENT_LENGTH": "60000"}
        for edge in ("messages", "media", "register", "subscribed_apps", "anything"):
            path = f"/v25.0/{number.phone_number_id}/{edge}"
            for form in ("application/json", "multipart/form-data; boundary=b"):
                error_of(Client().post(path, b"", content_type=form, headers=headers, **unread), status, code)

    def test_a_body_over_the_limit_is_refused_in_the_graph_apis_form(
        self, api: Api, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finished: list[FinishedCall] = []
        monkeypatch.setattr(access_log, "_listeners", [finished.append])
        path = f"/v25.0/{number.phone_number_id}/message_templates"
        too_large = b" " * (limits.API_BODY_BYTES + 1)
        error_of(api.post(path, too_large), 413, 100)
        (call,) = finished
        assert (call.route, call.status) == ("/{version}/{node}/message_templates", 413)
        assert call.caller is not None
        assert call.caller.tenant is not None
        assert call.caller.tenant.id == tenant.id, "the request log shows the tenant its call"
        error_of(Api(None).post(path, too_large), 401, 190)
        error_of(api.post("/v25.0/no-such-path", too_large), 400, 2500)

    def test_a_form_that_is_none_is_refused_in_the_graph_apis_form(
        self, api: Api, number: PhoneNumber
    ) -> None:
        answer = api.client.generic(
            "POST",
            f"/v25.0/{number.phone_number_id}/media",
            b"x",
            content_type="multipart/form-data",
            headers=api.headers,
        )
        assert "boundary" in error_of(answer, 400, 100)["message"]

    @pytest.mark.parametrize("away", [OperationalError("away"), PoolTimeout("away")], ids=repr)
    def test_an_outage_of_the_database_is_transient(
        self, api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch, away: Exception
    ) -> None:
        def fail(*_: Any) -> None:
            raise away

        monkeypatch.setattr(bearer_tokens.BearerAuthentication, "caller_for", fail)
        for path in (f"/v25.0/{number.phone_number_id}", "/v25.0/me", "/v25.0/upload:x"):
            assert error_of(api.get(path), 503, 2)["is_transient"], path

    def test_a_call_of_the_front_is_one_call(self, api: Api, number: PhoneNumber, settings: Settings) -> None:
        # At this rate the bucket does not refill between the two calls.
        settings.API_RATE_PER_SECOND = 0.001
        path = f"/v25.0/{number.phone_number_id}/messages"
        left = [int(api.post(path, TEXT)["RateLimit-Remaining"]) for _ in range(2)]
        assert left[0] - left[1] == 1, "handing on to /v1 is not a second call"

    @pytest.mark.parametrize(
        ("method", "edge"),
        [("POST", "messages"), ("POST", "media"), ("GET", "settings"), ("POST", "subscribed_apps")],
    )
    def test_calls_that_wait_for_the_upstream_are_bounded(
        self, api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch, method: str, edge: str
    ) -> None:
        full = Bulkhead(per_number=0, per_tenant=9, crowded=9, in_all=9)
        if edge in {"media", "subscribed_apps"}:
            full = Bulkhead(per_number=9, per_tenant=0, crowded=9, in_all=9)
        monkeypatch.setattr(limits, "sends" if edge == "messages" else "upstream", full)
        node = number.account.waba_id if edge == "subscribed_apps" else number.phone_number_id
        answer = api.request(method, f"/v25.0/{node}/{edge}", TEXT if edge == "messages" else None)
        error = error_of(answer, 429, 130429)
        assert (error["error_data"]["gateway_code"], answer["Retry-After"]) == ("too_many_in_flight", "1")


class TestMessages:
    @pytest.mark.parametrize(("prefix", "slash"), [("/v25.0", ""), ("/v13.0", "/"), ("", "")])
    def test_a_send_is_the_upstreams_answer_and_an_event(
        self,
        api: Api,
        number: PhoneNumber,
        simulator: RunningSimulator,
        monkeypatch: pytest.MonkeyPatch,
        prefix: str,
        slash: str,
    ) -> None:
        finished: list[FinishedCall] = []
        monkeypatch.setattr(access_log, "_listeners", [finished.append])
        answer = api.post(f"{prefix}/{number.phone_number_id}/messages{slash}", TEXT)
        assert answer.status_code == 200, answer.content
        assert [call.route in access_log.SEND_ROUTES for call in finished] == [True]
        assert list(answer.json()) == ["messaging_product", "contacts", "messages"]
        assert answer["facebook-api-version"] == (prefix.strip("/") or "v25.0")
        assert answer["x-fb-request-id"] == answer["X-Service-Request-Id"]
        node = api.get(f"{prefix}/{number.phone_number_id}")
        assert node["facebook-api-version"] == answer["facebook-api-version"]
        assert sent_bodies(simulator, number) == [TEXT]
        event = Event.objects.get(type="message.outbound")
        assert event.wamid == answer.json()["messages"][0]["id"]

    def test_a_number_that_is_not_connected(self, api: Api, number: PhoneNumber) -> None:
        for detail, status, code in (
            ("no_verified_endpoint", 400, 133010),
            ("token_invalid", 401, 190),
            ("account_removed", 403, 131031),
        ):
            PhoneNumber.objects.update(connection_state="disconnected", connection_detail=detail)
            answer = api.post(f"/v25.0/{number.phone_number_id}/messages", TEXT)
            assert error_of(answer, status, code)["error_data"]["gateway_code"] == "number_not_connected"

    def test_what_the_upstream_refuses_comes_as_it_came(self, api: Api, number: PhoneNumber) -> None:
        answer = api.post(f"/v25.0/{number.phone_number_id}/messages", {**TEXT, "to": "919812340030"})
        error = error_of(answer, 400, 131030)
        assert "gateway_code" not in error["error_data"]

    def test_a_missing_member_is_131008(self, api: Api, number: PhoneNumber) -> None:
        body = {"messaging_product": "whatsapp", "type": "text", "text": {"body": "Hi"}}
        error = error_of(api.post(f"/v25.0/{number.phone_number_id}/messages", body), 400, 131008)
        assert error["error_data"]["details"].startswith("to: Required")

    def test_what_is_no_json_object_is_said_to_be_none(self, api: Api, number: PhoneNumber) -> None:
        path = f"/v25.0/{number.phone_number_id}/messages"
        for body, said, kind in (
            ("{", "not valid JSON", "application/json"),
            ("[1]", "a JSON object", "application/json"),
            ('{"to": NaN}', "not valid JSON", "application/json"),
            ("x", "boundary", "multipart/form-data"),
        ):
            answer = api.client.post(path, body, content_type=kind, headers=api.headers)
            assert said in error_of(answer, 400, 100)["error_data"]["details"]

    def test_silence_of_the_upstream_is_131000_and_not_transient(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        simulator.faults({"action": "reset", "when": "after", "match": {"path": "/messages$"}})
        answer = api.post(f"/v25.0/{number.phone_number_id}/messages", TEXT)
        assert error_of(answer, 502, 131000)["is_transient"] is False
        assert len(sent_bodies(simulator, number)) == 1


class TestMedia:
    def upload(self, api: Api, number: PhoneNumber, query: str = "", **form: str) -> Any:
        file = SimpleUploadedFile("photo.jpg", b"\xff\xd8\xffdata", "image/jpeg")
        return api.client.post(
            f"/v25.0/{number.phone_number_id}/media{query}", {"file": file, **form}, headers=api.headers
        )

    @pytest.mark.parametrize("kind", ["image/jpeg", "image", None])
    def test_a_file_goes_up_is_described_at_our_address_comes_down_and_goes(
        self, api: Api, number: PhoneNumber, settings: Settings, kind: str | None
    ) -> None:
        form = {"messaging_product": "whatsapp", **({"type": kind} if kind else {})}
        answer = self.upload(api, number, **form)
        assert answer.status_code == 200, answer.content
        media = answer.json()["id"]
        described = api.get(f"/v25.0/{media}?phone_number_id={number.phone_number_id}").json()
        assert described["mime_type"] == "image/jpeg"
        address = f"{settings.BASE_URL}/v25.0/{media}/content"
        assert described["url"] == f"{address}?phone_number_id={number.phone_number_id}"
        assert api.get(f"/v25.0/{media}").json()["url"] == address
        content = api.get(described["url"].removeprefix(settings.BASE_URL))
        assert b"".join(content.streaming_content) == b"\xff\xd8\xffdata"
        assert api.delete(f"/v25.0/{media}").json() == {"success": True}
        error_of(api.get(f"/v25.0/{media}"), 400, 100, 33)

    def test_a_file_that_no_message_brought_comes_down_at_the_address_of_its_description(
        self, api: Api, tenant: Tenant, simulator: RunningSimulator, number: PhoneNumber, settings: Settings
    ) -> None:
        media = self.upload(api, number, messaging_product="whatsapp").json()["id"]
        KnownMedia.objects.all().delete()
        latest = connected_number(tenant, simulator.account(), last_event_at=now())
        described = api.get(f"/v25.0/{media}?phone_number_id={number.phone_number_id}").json()
        content = api.get(described["url"].removeprefix(settings.BASE_URL))
        assert b"".join(content.streaming_content) == b"\xff\xd8\xffdata"
        other = f"/v25.0/{media}/content?phone_number_id={latest.phone_number_id}"
        error_of(api.get(other), 400, 100, 33)

    def test_a_file_may_be_as_large_as_on_v1_and_a_message_may_not(self) -> None:
        assert limits.limit_of(resolve("/v25.0/123456/media").func) == limits.limit_of(
            resolve("/v1/media").func
        )
        assert limits.limit_of(resolve("/123456/media/").func) == limits.limit_of(resolve("/v1/media").func)
        assert limits.limit_of(resolve("/v25.0/123456/messages").func) == limits.limit_of(
            resolve("/v1/messages").func
        )


class TestPassThrough:
    def test_an_empty_answer_of_the_upstream_passes(self, api: Api, number: PhoneNumber) -> None:
        """The number has no settings, so Meta's answer is an empty object."""
        answer = api.get(f"/v25.0/{number.phone_number_id}/settings")
        assert (answer.status_code, answer.json()) == (200, {})

    def test_an_unknown_id_is_not_said_to_be_a_media(self, api: Api, number: PhoneNumber) -> None:
        error = error_of(api.get("/v25.0/999000999000999"), 400, 100, 33)
        assert "The object does not exist" in error["message"]

    def test_links_to_other_pages_are_the_gateways_and_without_metas_credentials(
        self,
        api: Api,
        key: api_keys.NewKey,
        account: SimulatedAccount,
        number: PhoneNumber,
        graph: ScriptedGraph,
        settings: Settings,
    ) -> None:
        secrets = f"access_token={account.access_token}&appsecret_proof=p&appsecret_time=1"
        page_of_meta = f"https://graph.example/v25.0/1/flows?{secrets}&limit=1&after=abc"
        listed = {
            "data": [{"id": "1", "token": account.access_token}],
            "paging": {"next": page_of_meta, "previous": page_of_meta},
        }
        graph.answers("GET", f"/{account.waba_id}/flows", listed)
        path = f"/v25.0/{account.waba_id}/flows"
        link = f"{settings.BASE_URL}{path}?limit=1&after=abc"
        answer = api.get(path)
        assert answer.json()["paging"] == {"next": link, "previous": link}
        assert account.access_token not in answer.content.decode()
        found = Client().get(f"{path}?access_token={key.key}").json()["paging"]
        assert found["next"] == f"{link}&access_token={key.key}", "a key in the query opens the next page too"

    def test_links_of_expanded_lists_are_the_gateways_too(
        self,
        api: Api,
        account: SimulatedAccount,
        number: PhoneNumber,
        graph: ScriptedGraph,
        settings: Settings,
    ) -> None:
        page_of_meta = f"https://graph.example/v25.0/{account.waba_id}/phone_numbers?access_token=t&after=abc"
        expanded = {"data": [{"id": "1"}], "paging": {"cursors": {"after": "abc"}, "next": page_of_meta}}
        odd = {"paging": ["next"]}
        answer = {"id": account.waba_id, "phone_numbers": expanded, "flows": {"data": [odd]}}
        graph.answers("GET", f"/{account.waba_id}", answer)
        shown = api.get(f"/v25.0/{account.waba_id}?fields=phone_numbers.limit(1),flows").json()
        link = f"{settings.BASE_URL}/v25.0/{account.waba_id}/phone_numbers?after=abc"
        assert shown["phone_numbers"]["paging"] == {"cursors": {"after": "abc"}, "next": link}
        assert shown["flows"] == {"data": [odd]}

    def test_a_change_of_templates_is_read_again_soon(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber
    ) -> None:
        made: dict[str, Any] = {"name": "sale", "language": "en_US", "category": "MARKETING"}
        made["components"] = [{"type": "BODY", "text": "Everything half price."}]
        path = f"/v25.0/{account.waba_id}/message_templates"
        assert api.post(path, made).status_code == 200
        TemplateMirror.objects.update(next_sync_at=now() + timedelta(hours=6))
        soon = TemplateMirror.objects.filter(next_sync_at__lt=now() + timedelta(minutes=1))
        assert api.get(path).status_code == 200
        assert not soon.exists()
        assert api.delete(f"{path}?name=sale").status_code == 200
        assert soon.exists()

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", "{number}"), ("POST", "12345/uploads?file_type=image/jpeg&file_length=1")],
    )
    def test_a_token_that_is_refused_is_asked_about(
        self,
        api: Api,
        account: SimulatedAccount,
        number: PhoneNumber,
        simulator: RunningSimulator,
        method: str,
        path: str,
    ) -> None:
        simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
        answer = api.request(method, "/v25.0/" + path.format(number=number.phone_number_id))
        assert answer.status_code == 401
        assert BusinessAccount.objects.get().token_invalid_at is not None

    def test_denied_edges(self, api: Api, account: SimulatedAccount, number: PhoneNumber) -> None:
        for edge in ("assigned_users", "messages", "media", "messages_encrypted"):
            error_of(api.get(f"/v25.0/{account.waba_id}/{edge}"), 403, 10)

    @pytest.mark.parametrize(
        ("query", "body"),
        [
            ("", {"pin": "777777", "x": 1}),
            ("", {"messaging_product": "whatsapp", "pin": "777777", "webhook_configuration": {}}),
            ("?pin=777777", {"x": 1}),
            ("?pin=777777", {}),
            ("", {"whatsapp_business_api_data": {"pin": "777777"}}),
            ("", {"pin": "123456", "whatsapp_business_api_data": {"pin": "777777"}}),
            ('?whatsapp_business_api_data={"pin":777777}', {}),
            ("", {"pin": ["777777"]}),
        ],
    )
    def test_no_way_of_setting_a_pin_leaves_the_gateways_behind(
        self, api: Api, number: PhoneNumber, query: str, body: dict[str, Any]
    ) -> None:
        """The call sets a PIN in an unusual way. Afterwards the number still registers with the PIN that is stored."""
        node = f"{number.phone_number_id}"
        assert api.post(f"/v1/numbers/{node}/two-step", {"pin": "123456"}).status_code == 200
        api.client.post(f"/v25.0/{node}{query}", body, content_type="application/json", headers=api.headers)
        assert api.post(f"/v1/numbers/{node}/deregister").status_code == 200
        answer = api.post(f"/v1/numbers/{node}/register")
        assert answer.status_code == 200, answer.content


class TestSubscriptions:
    def test_the_services_subscription_is_shown_repaired_and_kept(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber
    ) -> None:
        path = f"/v25.0/{account.waba_id}/subscribed_apps"
        BusinessAccount.objects.update(subscribed=False)
        assert api.get(path).json() == {"data": []}
        assert api.post(path).json() == {"success": True}
        assert len(api.get(path).json()["data"]) == 1
        error_of(api.delete(path), 403, 10)

    def test_debug_token_of_the_own_key_and_of_anothers(
        self,
        api: Api,
        other_tenant: Tenant,
        key: api_keys.NewKey,
        account: SimulatedAccount,
        number: PhoneNumber,
    ) -> None:
        data = api.get(f"/v25.0/debug_token?input_token={key.key}").json()["data"]
        assert (data["is_valid"], data["expires_at"]) == (True, 0)
        assert {scope["scope"]: scope["target_ids"] for scope in data["granular_scopes"]} == {
            "whatsapp_business_management": [account.waba_id],
            "whatsapp_business_messaging": [account.waba_id],
        }
        tested = {"environment": "test", "waba_id": "555", "access_token": "E"}
        BusinessAccount.objects.create(tenant=number.tenant, **tested)
        for environment, waba_id in (("live", account.waba_id), ("test", "555")):
            own = api_keys.create(name="s", environment=environment, tenant=number.tenant).key
            data = api.get(f"/v25.0/debug_token?input_token={own}").json()["data"]
            assert data["granular_scopes"][0]["target_ids"] == [waba_id], "those of the key's environment"
        ends = now().replace(microsecond=0) + timedelta(days=7)
        own = api_keys.create(name="s", environment="live", tenant=number.tenant, expires_at=ends).key
        data = api.get(f"/v25.0/debug_token?input_token={own}").json()["data"]
        assert data["expires_at"] == ends.timestamp()
        foreign = api_keys.create(name="s", environment="live", tenant=other_tenant).key
        for token in (foreign, "EAAnothing", ""):
            found = api.get(f"/v25.0/debug_token?input_token={token}").json()["data"]
            assert found["is_valid"] is False


class TestCallbacks:
    """Callback overrides, which are stored as endpoints in Meta's format."""

    @pytest.fixture(params=["account", "number"])
    def callback(
        self,
        request: pytest.FixtureRequest,
        account: SimulatedAccount,
        number: PhoneNumber,
        receiver: Receiver,
    ) -> tuple[str, dict[str, Any], dict[str, list[str]]]:
        """A path, the body that sets a callback at this path, and the filters that its endpoint gets."""
        body = {"override_callback_uri": receiver.url, "verify_token": "open sesame"}
        if request.param == "account":
            return f"/v25.0/{account.waba_id}/subscribed_apps", body, {"waba_ids": [account.waba_id]}
        filter_ = {"phone_number_ids": [number.phone_number_id]}
        return f"/v25.0/{number.phone_number_id}", {"webhook_configuration": body}, filter_

    def test_an_override_is_an_endpoint_that_answered_the_handshake(
        self, api: Api, receiver: Receiver, callback: Any
    ) -> None:
        path, body, filter_ = callback
        before = Endpoint.objects.count()
        made = api.post(path, body)
        assert (made.status_code, made.json()["success"]) == (200, True), made.content
        endpoint = Endpoint.objects.get(pk=made.json()["webhook"]["id"])
        assert (endpoint.status, endpoint.format, endpoint.url) == ("active", "meta", receiver.url)
        assert made.json()["webhook"]["secret"] == endpoint.secret
        assert {"waba_ids": endpoint.waba_ids, "phone_number_ids": endpoint.phone_number_ids} == {
            "waba_ids": None, "phone_number_ids": None, **filter_,
        }  # fmt: skip
        assert receiver.pings[-1].query["hub.verify_token"] == "open sesame"

        holder = body.get("webhook_configuration", body)
        holder["override_callback_uri"] += "/second"
        holder["verify_token"] = "open barley"
        assert api.post(path, body).json() == {"success": True}
        assert receiver.pings[-1].query["hub.verify_token"] == "open barley"
        endpoint.refresh_from_db()
        assert endpoint.url == holder["override_callback_uri"]
        assert Endpoint.objects.count() == before + 1

    def test_the_audit_log_names_the_key_that_led_the_events_elsewhere(
        self, api: Api, key: api_keys.NewKey, callback: Any
    ) -> None:
        path, body, _ = callback
        assert api.post(path, body).status_code == 200
        holder = body.get("webhook_configuration", body)
        holder["override_callback_uri"] += "/second"
        assert api.post(path, body).status_code == 200
        if "webhook_configuration" in body:
            holder["override_callback_uri"] = ""
            assert api.post(path, body).status_code == 200
        else:
            assert api.delete(path).status_code == 200
        entries = AuditEntry.objects.filter(target_type="webhook_endpoint")
        recorded = {entry.action: entry.details["acting_key"] for entry in entries}
        actions = ("webhook_endpoint.create", "webhook_endpoint.update", "webhook_endpoint.delete")
        assert recorded == dict.fromkeys(actions, key.row.prefix)

    def test_a_callback_that_does_not_answer_is_2200_and_leaves_nothing(
        self, api: Api, receiver: Receiver, callback: Any
    ) -> None:
        path, body, _ = callback
        before = Endpoint.objects.count()
        receiver.ping_answer = lambda request: web.Response(status=404)
        error_of(api.post(path, body), 400, 2200)
        assert Endpoint.objects.count() == before
        receiver.ping_answer = lambda request: web.Response(text=request.query["hub.challenge"])
        assert api.post(path, body).status_code == 200
        receiver.ping_answer = lambda request: web.Response(status=404)
        holder = body.get("webhook_configuration", body)
        former = holder["override_callback_uri"]
        holder["override_callback_uri"] += "/second"
        error_of(api.post(path, body), 400, 2200)
        assert Endpoint.objects.filter(format="meta").get().url == former

    def test_another_tenants_endpoint_of_the_same_uid_and_one_in_another_form_stay(
        self, api: Api, other_tenant: Tenant, number: PhoneNumber, callback: Any
    ) -> None:
        """The number's previous tenant may have an endpoint with this uid, and any endpoint may be given this uid."""
        path, body, filter_ = callback
        ((node,),) = filter_.values()
        uid, url = f"cloud-api:{node}", "https://former.example"
        theirs = Endpoint.objects.create(
            tenant=other_tenant, environment="live", format="meta", uid=uid, url=url, event_types=["*"]
        )
        shown = api.get(f"/v25.0/{number.phone_number_id}?fields=webhook_configuration").json()
        assert shown["webhook_configuration"] == {}
        made = api.post(path, body)
        assert made.json()["webhook"]["id"] != str(theirs.id)
        assert Endpoint.objects.filter(pk=made.json()["webhook"]["id"]).update(format="envelope") == 1
        holder = body.get("webhook_configuration", body)
        former = holder["override_callback_uri"]
        holder["override_callback_uri"] += "/second"
        assert api.post(path, body).status_code == 400
        assert set(Endpoint.objects.filter(uid=uid).values_list("url", flat=True)) == {url, former}

    def test_a_callback_is_one_of_the_twenty_endpoints(
        self, api: Api, monkeypatch: pytest.MonkeyPatch, callback: Any
    ) -> None:
        path, body, _ = callback
        monkeypatch.setattr(lifecycle, "MOST_ENDPOINTS", Endpoint.objects.count())
        assert "endpoints" in error_of(api.post(path, body), 400, 100)["message"]

    def test_what_is_missing_or_no_url_is_named(self, api: Api, callback: Any) -> None:
        path, body, _ = callback
        holder = body.get("webhook_configuration", body)
        del holder["verify_token"]
        assert "verify_token" in error_of(api.post(path, body), 400, 131008)["error_data"]["details"]
        holder |= {"verify_token": "t", "override_callback_uri": "ftp://shop.example"}
        assert "override_callback_uri" in error_of(api.post(path, body), 400, 100)["error_data"]["details"]

    def test_it_is_shown_and_removed(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, receiver: Receiver
    ) -> None:
        path = f"/v25.0/{account.waba_id}/subscribed_apps"
        override = {"override_callback_uri": receiver.url, "verify_token": "t"}
        assert api.post(path, override).status_code == 200
        (app,) = api.get(path).json()["data"]
        assert app["override_callback_uri"] == receiver.url
        number_path = f"/v25.0/{number.phone_number_id}?fields=webhook_configuration"
        assert api.get(number_path).json()["webhook_configuration"] == {
            "whatsapp_business_account": receiver.url
        }
        assert api.post(path).json() == {"success": True}
        assert Endpoint.objects.filter(format="meta").exists(), "repairing a subscription takes nothing away"
        assert api.delete(path).json() == {"success": True}
        node = f"/v25.0/{number.phone_number_id}"
        assert api.post(node, {"webhook_configuration": override}).status_code == 200
        shown = api.get(f"{node}?fields=webhook_configuration").json()
        listed = f"/v25.0/{account.waba_id}/phone_numbers?fields=webhook_configuration"
        expanded = f"/v25.0/{account.waba_id}?fields=phone_numbers{{webhook_configuration}}"
        rows = [
            shown,
            api.get(listed).json()["data"][0],
            api.get(expanded).json()["phone_numbers"]["data"][0],
        ]
        assert [row["webhook_configuration"] for row in rows] == [{"phone_number": receiver.url}] * 3
        empty = {"webhook_configuration": {"override_callback_uri": "", "verify_token": ""}}
        assert [api.post(node, empty).json() for _ in range(2)] == [{"success": True}] * 2
        assert not Endpoint.objects.filter(format="meta").exists()

    def test_two_at_once_make_one_endpoint(
        self, key: api_keys.NewKey, account: SimulatedAccount, number: PhoneNumber, receiver: Receiver
    ) -> None:
        met = threading.Barrier(2, timeout=10)
        original = lifecycle.create

        def create(**given: Any) -> Endpoint:
            met.wait()
            return original(**given)

        def post() -> int:
            try:
                override = {"override_callback_uri": receiver.url, "verify_token": "t"}
                path = f"/v25.0/{account.waba_id}/subscribed_apps"
                status: int = Api(key.key).post(path, override).status_code
                return status
            finally:
                connection.close()

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
            patch.setattr(lifecycle, "create", create)
            assert [each.result() for each in [pool.submit(post) for _ in range(2)]] == [200, 200]
        assert Endpoint.objects.filter(format="meta").count() == 1

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_a_failed_one_leaves_what_another_call_set_meanwhile(
        self,
        api: Api,
        account: SimulatedAccount,
        receiver: Receiver,
        number: PhoneNumber,
        monkeypatch: pytest.MonkeyPatch,
        is_deleted: bool,
    ) -> None:
        """The other call finds the endpoint of the first one. It gets 200, also if the first one fails during its
        handshake and so deletes that endpoint.
        """
        path, original = f"/v25.0/{account.waba_id}/subscribed_apps", verify_ping.passed
        right = {"override_callback_uri": receiver.url, "verify_token": "t"}
        mistyped = {**right, "override_callback_uri": "http://127.0.0.1:9/"}
        answers: list[Any] = []

        def passed(endpoint: Endpoint, **given: Any) -> verify_ping.Ping:
            if endpoint.url == mistyped["override_callback_uri"]:
                answers.append(api.post(path, right))
            elif is_deleted:
                Endpoint.objects.filter(verified_at=None, url=mistyped["override_callback_uri"]).delete()
            return original(endpoint, **given)

        monkeypatch.setattr(verify_ping, "passed", passed)
        error_of(api.post(path, mistyped), 400, 2200)
        (answer,) = answers
        assert answer.json()["success"] is True, answer.content
        endpoint = Endpoint.objects.get(format="meta")
        assert (endpoint.status, endpoint.url) == ("active", receiver.url)
        assert ("webhook" in answer.json()) == is_deleted


class TestMarketingMessages:
    def test_they_go_to_the_upstreams_own_edge_with_keys_of_their_own(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        made: dict[str, Any] = {"name": "sale", "language": "en_US", "category": "MARKETING"}
        made["components"] = [{"type": "BODY", "text": "Everything half price."}]
        answer = api.post(f"/v25.0/{account.waba_id}/message_templates", made)
        assert answer.status_code == 200
        simulator.control("POST", f"templates/{answer.json()['id']}", {"event": "APPROVED"})
        template = {"name": "sale", "language": {"code": "en_US"}}
        body = {"messaging_product": "whatsapp", "to": CUSTOMER, "type": "template", "template": template}
        path = f"/v25.0/{number.phone_number_id}/marketing_messages"
        first, again = (api.post(path, body, Idempotency_Key="sale-1") for _ in range(2))
        assert first.status_code == 200, first.content
        assert first.content == again.content
        rows = simulator.control("GET", f"requests?node={number.phone_number_id}&limit=100")["data"]
        sent = [row for row in rows if row["path"].endswith("/marketing_messages")]
        assert [orjson.loads(row["body"]) for row in sent] == [body]
        assert Event.objects.get(type="message.outbound").wamid == first.json()["messages"][0]["id"]
        messages = f"/v25.0/{number.phone_number_id}/messages"
        error_of(api.post(messages, body, Idempotency_Key="sale-1"), 422, 100)


def test_an_unknown_path_is_2500_in_json(api: Api) -> None:
    error_of(api.get("/v25.0/nothing/here"), 400, 2500)


class TestRoot:
    @pytest.mark.parametrize("path", ["/v13.0/", "/v25.0"])
    def test_the_version_alone_distinguishes_a_valid_key_from_an_invalid_one(
        self, api: Api, path: str
    ) -> None:
        """n8n tests a credential with this call. The type `OAuthException` means that the key is not valid."""
        assert error_of(api.get(path), 400, 100)["type"] == "GraphMethodException"
        assert error_of(Api("wb_live_unknown").get(path), 401, 190)["type"] == "OAuthException"

    def test_me_is_the_keys_business_and_has_nothing_below(self, api: Api, tenant: Tenant) -> None:
        for prefix in ("/v25.0", ""):
            shown = api.get(f"{prefix}/me?fields=id,name").json()
            assert shown == {"id": str(tenant.id.int), "name": tenant.name}
            error_of(api.get(f"{prefix}/me/businesses"), 400, 100, 33)

    def test_the_template_library_is_read_with_an_own_account(
        self, api: Api, other_api: Api, number: PhoneNumber
    ) -> None:
        for prefix in ("/v25.0", ""):
            rows = api.get(f"{prefix}/message_template_library?limit=2&language=en_US").json()["data"]
            assert len(rows) == 2
            error_of(other_api.get(f"{prefix}/message_template_library"), 400, 100)


def test_codes_are_exchanged_elsewhere(api: Api) -> None:
    error = error_of(api.get("/v25.0/oauth/access_token?code=x"), 400, 100)
    assert "/v1/numbers/connect" in error["message"]


def documented_errors() -> Iterator[tuple[str, int, int, int | None, bool]]:
    """The page's table of errors: gateway code, status, Graph code, subcode, and whether the error is transient."""
    table = page("docs/cloud-api.md").partition("## Errors")[2].partition("## Which software")[0]
    for row in re.findall(r"^\| (`.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE):
        names, statuses = re.findall(r"`(\w+)`", row[0]), re.findall(r"\d+", row[1])
        first = row[2].partition(";")[0]
        codes = re.findall(r"(?<!subcode )\b\d+\b", first)
        subcode = re.search(r"subcode (\d+)", first)
        is_transient = "transient" in row[2] and "not** transient" not in row[2]
        for place in range(max(len(names), len(statuses))):
            name, status, code = (each[min(place, len(each) - 1)] for each in (names, statuses, codes))
            yield name, int(status), int(code), int(subcode[1]) if subcode else None, is_transient


def test_each_error_of_the_service_is_documented() -> None:
    assert {code for code, *_ in documented_errors()} == {*errors.CODES, "idempotency_conflict"}


@pytest.mark.parametrize(
    ("code", "status", "graph_code", "subcode", "is_transient"), list(documented_errors())
)
def test_an_error_of_the_service_has_the_documented_form(
    code: str, status: int, graph_code: int, subcode: int | None, is_transient: bool
) -> None:
    # The front replaces the status of most errors.
    own = status if code == "idempotency_conflict" else 418
    error = type("Error", (ServiceError,), {"code": code, "status": own})(
        "Something is wrong.", headers={"Retry-After": "7", "Allow": "GET"}
    )
    reply = errors.graph_reply(error_reply(error, "req_1"), request_id="req_1", version="v25.0")
    said = orjson.loads(reply.body)["error"]
    assert (reply.status, said["code"], said.get("error_subcode")) == (status, graph_code, subcode)
    assert said["is_transient"] == is_transient
    assert said["error_data"]["gateway_code"] == code
    assert reply.headers["Retry-After"] == "7"
    assert "Allow" not in reply.headers
    assert reply.headers.get("WWW-Authenticate") == ("OAuth" if status == 401 else None)


def test_a_header_without_a_credential_is_no_key(api: Api, number: PhoneNumber) -> None:
    """A key in another place is used only if this header is missing, so a proxy cannot add a second caller."""
    key = api.headers["Authorization"].removeprefix("Bearer ")
    path = f"/v25.0/{number.phone_number_id}?fields=id"
    for header in ("Bearer", "OAuth", "wb_live_key", ""):
        answer = Client().get(path, headers={"Authorization": header, "X-API-Key": key})
        assert answer.status_code == (401 if header else 200), header


@pytest.mark.parametrize("kind", ["number", "account"])
def test_a_node_that_leaves_the_tenant_during_a_look_up_is_not_found(
    tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    other = Tenant.objects.create(name="Other")

    def run(statement: Any) -> Any:
        found = statements.run(statement)
        BusinessAccount.objects.update(tenant=other)
        PhoneNumber.objects.update(tenant=other)
        return found

    monkeypatch.setattr(known_nodes, "run", run)
    node_id = number.phone_number_id if kind == "number" else number.account.waba_id
    assert known_nodes.find_node(node_id, tenant_id=tenant.id, environment="live") is None
