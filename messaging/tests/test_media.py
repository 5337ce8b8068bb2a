"""`/v1/media*`: files are streamed verbatim in both directions. Also tests the owner of a file, and the hosts to which
the token is sent.
"""

import gc
import hashlib
import mimetypes
import resource
import tempfile
from datetime import timedelta
from typing import IO, Any
from urllib.parse import parse_qs

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.attachments import attach
from gateway.clock import now
from gateway.upstream.blocking_client import MultipartFile
from gateway.upstream.calls import UpstreamUnreachable
from gateway.upstream.media import MediaGraph
from messaging import known_nodes
from messaging.media import transfer, uploads
from messaging.models import KnownMedia
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import events_of, notification, post, text_change
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.credentials import api_keys
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, assert_service_headers
from tests.receiver import Receiver
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = pytest.mark.django_db

PATH = "/v1/media"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


def upload(api: Api, file: Any = None, **form: Any) -> Any:
    if file is not None:
        form["file"] = file
    return api.client.post(PATH, form, headers=api.headers)


def png(name: str = "photo.png") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, PNG, "image/png")


def content(answer: Any) -> bytes:
    assert isinstance(answer, StreamingHttpResponse)
    return b"".join(answer.streaming_content)  # type: ignore[arg-type]


@pytest.fixture
def media_id(api: Api, number: PhoneNumber) -> str:
    return str(upload(api, png(), **{"from": number.phone_number_id}).json()["id"])


def test_a_file_goes_up_and_comes_back_as_it_was(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    answer = upload(api, png("photo ü.png"), **{"from": f"+{number.digits}"})
    assert answer.status_code == 200
    assert_service_headers(answer)
    assert list(answer.json()) == ["id"]
    down = api.get(f"{PATH}/{answer.json()['id']}")
    assert down.status_code == 200
    assert_service_headers(down)
    assert down["Content-Type"] == "image/png"
    assert down["Content-Length"] == str(len(PNG))
    assert down["Content-Disposition"] == "attachment; filename*=utf-8''photo%20%C3%BC.png"
    assert content(down) == PNG


def test_the_type_of_the_form_goes_before_that_of_the_part(api: Api, number: PhoneNumber) -> None:
    answer = upload(api, png("x.bin"), **{"from": number.phone_number_id, "type": "image/jpeg"})
    down = api.get(f"{PATH}/{answer.json()['id']}")
    assert down["Content-Type"] == "image/jpeg"
    assert content(down) == PNG


def test_meta_gives_the_upstreams_description(api: Api, media_id: str) -> None:
    answer = api.get(f"{PATH}/{media_id}?meta=true")
    body = answer.json()
    assert list(body) == ["messaging_product", "url", "mime_type", "sha256", "file_size", "id"]
    assert body["sha256"] == hashlib.sha256(PNG).hexdigest()


@pytest.mark.django_db(transaction=True)
def test_inbound_media_is_found_without_from_among_several_numbers(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    """Meta gets one call for each request, with the number that received the file, although the tenant has four."""
    numbers = [number, *[connected_number(tenant, simulator.account()) for _ in range(3)]]
    for each in numbers:
        media_id = received(simulator, each, "image")
        PhoneNumber.objects.exclude(pk=each.pk).update(last_event_at=now() + timedelta(hours=1))
        answer = api.get(f"{PATH}/{media_id}")
        assert answer.status_code == 200, answer.content
        assert len(content(answer)) == int(answer["Content-Length"]) > 0
        assert api.get(f"{PATH}/{media_id}?meta=true").status_code == 200
        assert looked_up(simulator, media_id) == 2


def test_uploaded_media_is_found_without_from_among_several_numbers(
    api: Api, tenant: Tenant, media_id: str, simulator: RunningSimulator
) -> None:
    other = connected_number(tenant, simulator.account())
    PhoneNumber.objects.filter(pk=other.pk).update(last_event_at=now())
    assert api.get(f"{PATH}/{media_id}?meta=true").status_code == 200


def test_media_that_is_not_recorded_is_asked_of_a_number_of_the_keys_environment(
    api: Api, tenant: Tenant, number: PhoneNumber, media_id: str, simulator: RunningSimulator
) -> None:
    KnownMedia.objects.all().delete()
    PhoneNumber.objects.filter(pk=number.pk).update(last_event_at=now() - timedelta(days=1))
    other = connected_number(tenant, simulator.account())
    PhoneNumber.objects.filter(pk=other.pk).update(environment="test", last_event_at=now())
    assert api.get(f"{PATH}/{media_id}?meta=true").status_code == 200


def test_media_that_is_not_recorded_is_asked_of_the_number_with_the_newest_event(
    tenant: Tenant, graph: ScriptedGraph
) -> None:
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="1", access_token="EAA", subscribed=True
    )
    for place, last_event_at in enumerate(
        (now() - timedelta(days=1), now(), now() - timedelta(days=2), None)
    ):
        PhoneNumber.objects.create(
            account=account,
            tenant=tenant,
            environment="live",
            phone_number_id=f"20{place}",
            connection_state="connected",
            last_event_at=last_event_at,
        )
    for numbers, asked in ((None, "201"), (["200", "202", "203"], "200"), (["202", "203"], "202")):
        key = api_keys.create(name="k", environment="live", tenant=tenant, phone_number_ids=numbers)
        Api(key.key).get(f"{PATH}/77?meta=true")
        assert f"phone_number_id={asked}" in str(graph.received[-1])


@pytest.mark.parametrize(("from_", "names_it"), [("200", False), ("201", True)])
def test_media_of_another_number_is_asked_of_the_number_that_the_caller_names(
    tenant: Tenant, graph: ScriptedGraph, from_: str, names_it: bool
) -> None:
    """Meta compares a named number with that of the file, so a key of one number reads no file of another."""
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="1", access_token="EAA", subscribed=True
    )
    for phone_number_id in ("200", "201"):
        PhoneNumber.objects.create(
            account=account,
            tenant=tenant,
            environment="live",
            phone_number_id=phone_number_id,
            connection_state="connected",
        )
    KnownMedia.objects.create(tenant_id=tenant.id, environment="live", media_id="77", phone_number_id="200")
    key = api_keys.create(name="k", environment="live", tenant=tenant, phone_number_ids=[from_])
    Api(key.key).get(f"{PATH}/77?meta=true&from={from_}")
    assert (f"phone_number_id={from_}" in str(graph.received[-1])) is names_it


def test_an_unknown_media_id_costs_one_look_up(
    api: Api, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    for _ in range(3):
        connected_number(tenant, simulator.account())
    media_id = "518262192699999"
    assert_error(api.get(f"{PATH}/{media_id}"), 404, "not_found")
    assert looked_up(simulator, media_id) == 1


@pytest.mark.django_db(transaction=True)
def test_media_ids_of_any_shape_do_no_harm_to_their_notification(number: PhoneNumber, tenant: Tenant) -> None:
    odd: list[dict[str, Any]] = [{"image": {"id": id_}} for id_ in ("x", "", "1" * 65, 5, None, "٣")]
    message = {"from": "919812345678", "id": "wamid.1", "timestamp": "1793500000", "type": "image"}
    change = text_change(number.phone_number_id, "wamid.0")
    change["value"]["messages"] = [
        message | {"id": f"wamid.{place}"} | each
        for place, each in enumerate([*odd, {"video": 1}, {"audio": {}}])
    ]
    assert post(notification((number.account.waba_id, [change]))).status_code == 200
    assert len(events_of(tenant)) == 8
    assert not KnownMedia.objects.exists()


_HEAD = {"from": "919812345678", "id": "wamid.1", "timestamp": "1793500000"}
_EDITED = {"original_message_id": "wamid.O", "message": {"type": "image", "image": {"id": "77777"}}}
_EDIT = {**_HEAD, "type": "edit", "edit": _EDITED}
_IMAGE = {**_HEAD, "type": "image", "image": {"id": "77777"}}


def _flow(media_id: object) -> dict[str, Any]:
    """A finished Flow whose customer attached a file."""
    file = {"file_name": "IMG_1.jpg", "mime_type": "image/jpeg", "sha256": "3f9d", "id": media_id}
    written = orjson.dumps({"photo_picker": [file], "flow_token": "t"}).decode()
    reply = {"name": "flow", "body": "Sent", "response_json": written}
    return {**_HEAD, "type": "interactive", "interactive": {"type": "nfm_reply", "nfm_reply": reply}}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", {"messages": [_EDIT]}),
        ("messages", {"messages": [_flow("77777")]}),
        ("messages", {"messages": [_flow(77777)]}),
        ("smb_message_echoes", {"message_echoes": [_EDIT]}),
        ("standby", {"standby": {"messages": [_IMAGE]}}),
        ("standby", {"standby": {"messages": [_EDIT]}}),
        ("standby", {"standby": {"message_echoes": [{**_HEAD, "message": _IMAGE}]}}),
    ],
)
def test_media_of_edits_of_flows_and_of_chats_of_metas_agent_belong_to_their_number(
    api: Api,
    tenant: Tenant,
    simulator: RunningSimulator,
    number: PhoneNumber,
    graph: ScriptedGraph,
    field: str,
    value: dict[str, Any],
) -> None:
    """Another number had the latest event, so the file's number cannot be guessed."""
    change = text_change(number.phone_number_id, "wamid.1")
    del change["value"]["messages"]
    change |= {"field": field, "value": change["value"] | value}
    assert post(notification((number.account.waba_id, [change]))).status_code == 200
    connected_number(tenant, simulator.account(), last_event_at=now() + timedelta(hours=1))
    graph.always_answers({"id": "77777", "mime_type": "image/png"})
    for path in ("/v25.0/77777", f"{PATH}/77777?meta=true"):
        assert api.get(path).json()["mime_type"] == "image/png"
    assert len(graph.received) == 2
    for request in graph.received:
        # Meta refuses a call for received media that names a number.
        assert "phone_number_id" not in parse_qs(request.query)
        assert request.headers["authorization"] == f"Bearer {number.account.access_token}"


def test_media_that_meta_no_longer_keeps_are_pruned(tenant: Tenant) -> None:
    for media_id, days in (("1", 32), ("2", 30)):
        KnownMedia.objects.create(
            tenant_id=tenant.id,
            environment="live",
            media_id=media_id,
            phone_number_id="100",
            noted_at=now() - timedelta(days=days),
        )
    assert known_nodes.prune_media() == 1
    assert KnownMedia.objects.get().media_id == "2"


def received(simulator: RunningSimulator, number: PhoneNumber, kind: str) -> str:
    """The id of a media file that a customer sent. Its notification has been stored."""
    body = {"phone_number_id": number.phone_number_id, "from": "919812345678", "type": kind}
    simulator.control("POST", "inbound", body)
    rows = simulator.control("GET", f"messages?phone_number_id={number.phone_number_id}")["data"]
    media_id = str(rows[0]["body"][kind]["id"])
    change = text_change(number.phone_number_id, f"wamid.{media_id}")
    content = {"type": kind, kind: {"id": media_id, "mime_type": "image/png"}}
    change["value"]["messages"][0] |= content
    assert post(notification((number.account.waba_id, [change]))).status_code == 200
    return media_id


def looked_up(simulator: RunningSimulator, media_id: str) -> int:
    """How often Meta was called for a media file."""
    return len([call for call in simulator.calls(media_id) if call == "GET node"])


def test_delete_passes_verbatim_and_the_media_is_gone(api: Api, media_id: str) -> None:
    answer = api.delete(f"{PATH}/{media_id}")
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    error = assert_error(api.get(f"{PATH}/{media_id}"), 404, "not_found")
    assert error["details"]["reason"] == "media_deleted"
    assert error["details"]["upstream_error"]["error_subcode"] == 33
    assert "deleted with this API" in error["message"]


@pytest.mark.parametrize(("method", "query"), [("GET", "?meta=true"), ("DELETE", "")])
def test_what_is_no_media_is_neither_described_nor_deleted(
    api: Api, number: PhoneNumber, graph: ScriptedGraph, method: str, query: str
) -> None:
    graph.answers("GET", "/77", {"id": "77", "name": "a template that the token opens"})
    assert_error(api.request(method, f"{PATH}/77{query}"), 404, "not_found")
    assert [request.method for request in graph.received] == ["GET"]


def test_what_the_upstream_does_not_show_is_not_deleted(
    api: Api, number: PhoneNumber, graph: ScriptedGraph
) -> None:
    error = {"message": "Permission denied", "type": "OAuthException", "code": 10}
    graph.answers("GET", "/77", {"error": error}, status=403)
    assert api.delete(f"{PATH}/77").json()["error"]["code"] == 10
    assert [request.method for request in graph.received] == ["GET"]


def test_a_test_key_asks_no_live_number(tenant: Tenant, number: PhoneNumber, graph: ScriptedGraph) -> None:
    key = api_keys.create(name="Tests", environment="test", tenant=tenant)
    assert_error(Api(key.key).get(f"{PATH}/77"), 404, "not_found")
    assert_error(upload(Api(key.key), png(), **{"from": number.phone_number_id}), 400, "invalid_request")
    assert graph.received == []


def test_a_token_that_is_refused_for_media_is_asked_about(
    api: Api, account: SimulatedAccount, media_id: str, simulator: RunningSimulator
) -> None:
    simulator.control("PATCH", "tokens", {"access_token": account.access_token, "invalidated": True})
    assert api.get(f"{PATH}/{media_id}").status_code == 401
    assert BusinessAccount.objects.get().token_invalid_at is not None


def test_what_the_upstream_did_is_answered_although_it_cannot_be_noted(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(transfer, "run", refuse)
    answer = upload(api, png(), **{"from": number.phone_number_id})
    assert answer.status_code == 200
    deleted = api.delete(f"{PATH}/{answer.json()['id']}?from={number.phone_number_id}")
    assert deleted.json() == {"success": True}


@pytest.mark.parametrize(
    ("days", "reason"), [(None, "media_unknown"), (0, "media_gone"), (6, "media_gone"), (8, "media_expired")]
)
def test_media_that_meta_does_not_have_is_404_with_a_reason(
    api: Api, number: PhoneNumber, tenant: Tenant, other_tenant: Tenant, days: int | None, reason: str
) -> None:
    for owner in [other_tenant, *([tenant] if days is not None else [])]:
        KnownMedia.objects.create(
            tenant_id=owner.id,
            environment=number.environment,
            media_id="510000000000077",
            phone_number_id=number.phone_number_id,
            noted_at=now() - timedelta(days=days or 0),
        )
    for method in ("GET", "DELETE"):
        error = assert_error(api.request(method, f"{PATH}/510000000000077"), 404, "not_found")
        assert error["details"]["reason"] == reason
        assert error["hint"]
    assert not KnownMedia.objects.filter(deleted_at__isnull=False).exists()


def test_another_tenants_media_is_out_of_reach_even_with_a_token_that_opens_it(
    other_api: Api,
    other_tenant: Tenant,
    number: PhoneNumber,
    account: SimulatedAccount,
    media_id: str,
    simulator: RunningSimulator,
) -> None:
    theirs = simulator.account(variant="no_target_ids")
    connected_number(other_tenant, theirs)
    for method in ("GET", "DELETE"):
        error = assert_error(other_api.request(method, f"{PATH}/{media_id}"), 404, "not_found")
        assert error["details"]["reason"] == "media_unknown"
    assert_error(other_api.get(f"{PATH}/{media_id}?from={number.phone_number_id}"), 400, "invalid_request")


def test_without_any_number_there_is_no_media(other_api: Api, media_id: str) -> None:
    assert_error(other_api.get(f"{PATH}/{media_id}"), 404, "not_found")


def test_what_is_no_media_id_is_404(api: Api, number: PhoneNumber, graph: ScriptedGraph) -> None:
    for media_id in ("me", "..", "1x", "1" * 65, "%2e%2e%2f1", "²"):
        assert_error(api.get(f"{PATH}/{media_id}"), 404, "not_found")
        assert_error(api.delete(f"{PATH}/{media_id}"), 404, "not_found")
        assert graph.received == [], media_id


def test_what_a_form_lacks_is_named(api: Api, number: PhoneNumber) -> None:
    empty = SimpleUploadedFile("x.png", b"", "image/png")
    wrong: list[tuple[str, Any]] = [
        ("from", None),
        ("from", "000"),
        ("file", None),
        ("file", "text, no file"),
    ]
    for field, value in (*wrong, ("file", empty)):
        whole = {"from": number.phone_number_id, "file": png(), field: value}
        answer = upload(api, **{name: value for name, value in whole.items() if value is not None})
        assert list(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == [field], value


def test_a_body_that_is_no_form_is_415_or_400(api: Api, number: PhoneNumber) -> None:
    error = assert_error(api.post(PATH, {"from": number.phone_number_id}), 415, "unsupported_media_type")
    assert error["hint"].startswith("Send the file as multipart/form-data")
    broken = api.client.generic(
        "POST", PATH, b"x", content_type="multipart/form-data; boundary=b", headers=api.headers
    )
    assert_error(broken, 400, "invalid_request")
    without = api.client.generic("POST", PATH, b"x", content_type="multipart/form-data", headers=api.headers)
    assert_error(without, 400, "invalid_request")


def test_a_file_over_the_limit_is_413(api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_FILE_BYTES", len(PNG))
    assert upload(api, png(), **{"from": number.phone_number_id}).status_code == 200
    monkeypatch.setattr(uploads, "MAX_FILE_BYTES", len(PNG) - 1)
    answer = upload(api, png(), **{"from": number.phone_number_id})
    details = assert_error(answer, 413, "payload_too_large")["details"]
    assert details == {"limit_bytes": len(PNG) - 1}


def test_an_upload_needs_a_connected_number(api: Api, number: PhoneNumber) -> None:
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="deregistered")
    answer = upload(api, png(), **{"from": number.phone_number_id})
    assert_error(answer, 409, "number_not_connected")


def test_what_the_upstream_refuses_passes_through(api: Api, number: PhoneNumber) -> None:
    file = SimpleUploadedFile("x.tiff", b"II*\0", "image/tiff")
    answer = upload(api, file, **{"from": number.phone_number_id})
    assert (answer.status_code, answer.json()["source"], answer.json()["error"]["code"]) == (400, "meta", 100)


@pytest.mark.parametrize("fault", [{"action": "hang"}, {"action": "reset"}, {"action": "html"}])
def test_no_usable_answer_is_502(
    api: Api, number: PhoneNumber, media_id: str, simulator: RunningSimulator, settings: Any, fault: Any
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 300
    simulator.faults({"match": {"path": f"{number.phone_number_id}/media$|/{media_id}$"}, **fault})
    assert_error(api.get(f"{PATH}/{media_id}"), 502, "meta_unreachable")
    assert_error(upload(api, png(), **{"from": number.phone_number_id}), 502, "meta_unreachable")


@pytest.mark.parametrize(
    ("environment", "url", "allowed"),
    [
        ("live", "https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=1", True),
        ("live", "https://lookaside.fbsbx.com:443/x", True),
        ("live", "https://graph.facebook.com/v25.0/1", True),
        ("live", "http://lookaside.fbsbx.com/x", False),
        ("live", "https://lookaside.fbsbx.com.evil.example/x", False),
        ("live", "https://lookaside.fbsbx.com@evil.example/x", False),
        ("live", "https://evil.example/lookaside.fbsbx.com", False),
        ("live", "https://user@lookaside.fbsbx.com/x", False),
        ("live", "https://lookaside.fbsbx.com:8443/x", False),
        ("live", "https://lookaside.fbsbx.com:x/x", False),
        ("live", "http://127.0.0.1:8100/x", False),
        ("live", "//lookaside.fbsbx.com/x", False),
        ("test", "http://simulator.example:8100/x", True),
        ("test", "https://lookaside.fbsbx.com/x", False),
        ("test", "http://simulator.example:81/x", False),
    ],
)
def test_the_token_goes_to_the_upstreams_own_addresses_alone(
    settings: Any, environment: str, url: str, allowed: bool
) -> None:
    settings.META_GRAPH_URL = "https://graph.facebook.com"
    settings.SANDBOX_GRAPH_URL = "http://simulator.example:8100"
    assert MediaGraph(environment, "EAAx", "1").is_upstreams(url) is allowed


def test_an_address_elsewhere_is_asked_for_nothing(
    api: Api, number: PhoneNumber, graph: ScriptedGraph, receiver: Receiver
) -> None:
    graph.answers("GET", "/77", {"id": "77", "url": f"{receiver.url}/bytes"})
    error = assert_error(api.get(f"{PATH}/77"), 502, "meta_unreachable")
    assert error["details"]["reason"] == "unexpected_address"
    assert [request.path for request in graph.received] == ["/77"]
    assert receiver.received == []


@pytest.mark.parametrize("path", ["/v1/media/77777", "/v25.0/77777/content", "/77777/content"])
def test_a_browser_saves_a_strangers_file_and_runs_nothing_of_it(
    key: NewKey, number: PhoneNumber, graph: ScriptedGraph, path: str
) -> None:
    """The URL is opened as a link at the console's own address. In the Graph paths, it contains the key."""
    for content_type, disposition in (
        ("text/html", ""),
        ("text/html", 'inline; filename="a.html"'),
        ("image/svg+xml", "inline"),
        ("application/pdf", "inline"),
        ("image/png", ""),
    ):
        graph.answers("GET", "/77777", {"id": "77777", "url": f"{graph.url}/bytes"})
        header = f"Content-Disposition: {disposition}\r\n" if disposition else ""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{header}Content-Length: 8\r\n\r\n"
        graph.script["GET", "/bytes"] = [head.encode() + b"<script>"]
        if path.startswith("/v1"):
            answer = Client().get(path, headers={"Authorization": f"Bearer {key.key}", "Accept": "text/html"})
        else:
            answer = Client().get(f"{path}?access_token={key.key}", headers={"Accept": "text/html"})
        assert content(answer) == b"<script>"
        assert answer["Content-Disposition"].split(";")[0] == "attachment", content_type
        assert ("filename" in answer["Content-Disposition"]) == ("a.html" in disposition)
        assert answer["Content-Security-Policy"] == "sandbox"
        assert answer["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="invoice 7.pdf"', 'attachment; filename="invoice 7.pdf"'),
        (
            "attachment; filename*=UTF-8''photo%20%C3%BC.png",
            "attachment; filename*=utf-8''photo%20%C3%BC.png",
        ),
        ('inline; filename="../../etc/passwd"', 'attachment; filename="_.._etc_passwd"'),
        ('attachment; filename="C:\\\\a.exe"', 'attachment; filename="C_a.exe"'),
        ("attachment; filename*=UTF-8''a%0D%0AX-Evil%3A%201", 'attachment; filename="a_X-Evil_ 1"'),
        ("attachment; filename*=UTF-8''gpj%E2%80%AEexe", 'attachment; filename="gpj_exe"'),
        (f'attachment; filename="{"x" * 300}"', f'attachment; filename="{"x" * 200}"'),
        ("attachment; filename*=no-such-charset''a%FF", "attachment; filename*=utf-8''a%C3%BF"),
        ("attachment; filename=", "attachment"),
        ('attachment; filename="..."', "attachment"),
    ],
)
def test_the_name_of_an_attachment_is_a_name_and_nothing_else(disposition: str, name: str) -> None:
    response = HttpResponse()
    attach(response, disposition)
    assert response["Content-Disposition"] == name


@given(st.text(st.characters(exclude_characters="\r\n\0")))
def test_any_disposition_becomes_an_attachment(disposition: str) -> None:
    response = HttpResponse()
    attach(response, disposition)
    assert response["Content-Disposition"].isascii()
    assert response["Content-Disposition"].split(";")[0] == "attachment"


def test_an_expired_address_is_an_error_and_not_bytes(
    api: Api, number: PhoneNumber, graph: ScriptedGraph
) -> None:
    graph.answers("GET", "/77", {"id": "77", "url": f"{graph.url}/attachments/?mid=77"})
    graph.answers("GET", "/attachments/", b"Not Found", status=404, content_type="text/plain")
    error = assert_error(api.get(f"{PATH}/77"), 502, "meta_unreachable")
    assert error["details"]["upstream_status"] == 404


def test_an_address_with_odd_characters_stays_one_line(
    api: Api, number: PhoneNumber, graph: ScriptedGraph
) -> None:
    graph.answers("GET", "/77", {"id": "77", "url": f"{graph.url}/a b\r\nX-Evil: 1/é?mid=%2F7"})
    graph.answers("GET", "/a%20b%0D%0AX-Evil:%201/%C3%A9", b"bytes", content_type="image/png")
    assert content(api.get(f"{PATH}/77")) == b"bytes"
    assert graph.received[-1].query == "mid=%2F7"
    assert "x-evil" not in graph.received[-1].headers


def test_bytes_that_break_off_end_the_download_short_of_its_length(
    api: Api, number: PhoneNumber, graph: ScriptedGraph, settings: Any
) -> None:
    settings.UPSTREAM_TIMEOUT_MS = 300
    graph.answers("GET", "/77", {"id": "77", "url": f"{graph.url}/bytes"})
    graph.script["GET", "/bytes"] = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
    answer = api.get(f"{PATH}/77")
    assert (answer.status_code, answer["Content-Length"]) == (200, "9")
    received: list[bytes] = []
    with pytest.raises(UpstreamUnreachable):
        received.extend(answer.streaming_content)
    assert b"".join(received) in {b"", b"half"}


def test_a_large_file_passes_in_both_directions_in_bounded_memory(api: Api, number: PhoneNumber) -> None:
    """This test sends 20 MB through this process. The benchmark sends 100 MB through a web process."""
    size = 20 * 1024 * 1024
    block = bytes(range(256)) * 4096
    with tempfile.TemporaryFile() as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.seek(0)
        assert _growth(lambda: _send_to_nobody(file, size)) < 8 * 1024


def _send_to_nobody(file: IO[bytes], size: int) -> None:
    body = MultipartFile({"type": "x/y"}, file, length=size, name="x", mime_type="x/y")
    total = 0
    for piece in body:
        total += len(piece)
    assert total == len(body)


def _growth(work: Any) -> int:
    """How much the work raises the peak memory of the process, in kilobytes."""
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_a_form_holds_the_file_and_its_name_cannot_break_out() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(PNG)
        file.seek(0)
        name = 'a"\r\nX-Evil: 1\r\n\r\n.png'
        body = MultipartFile(
            {"type": "image/png\r\nX: 1"}, file, length=len(PNG), name=name, mime_type="image/png"
        )
        whole = b"".join(body)
    assert len(whole) == len(body)
    assert PNG in whole
    assert b'filename="a%22  X-Evil: 1    .png"\r\n' in whole
    assert b"\r\nX: 1" not in whole
    assert orjson.dumps(body.content_type)


def test_a_range_of_a_file(api: Api, number: PhoneNumber) -> None:
    file = SimpleUploadedFile("a.txt", b"0123456789", "text/plain")
    media = upload(api, file, **{"from": number.phone_number_id}).json()["id"]
    for path in (f"/v25.0/{media}/content", f"{PATH}/{media}"):
        for asked, found, part in (
            ("bytes=2-4", "bytes 2-4/10", b"234"),
            ("bytes=7-", "bytes 7-9/10", b"789"),
            ("bytes=-2", "bytes 8-9/10", b"89"),
            ("bytes=10-", None, b"0123456789"),
            ("bytes=1-2,4-5", None, b"0123456789"),
            ("items=1-2", None, b"0123456789"),
        ):
            answer: Any = api.client.get(path, headers={**api.headers, "Range": asked})
            assert (answer.status_code, answer.get("Content-Range")) == (206 if found else 200, found), asked
            assert content(answer) == part
            assert answer["Content-Length"] == str(len(part))


def test_a_file_without_a_type_has_that_of_its_name(
    api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slim container has no list of media types, only Python's own.
    monkeypatch.setattr(mimetypes, "guess_type", mimetypes.MimeTypes(filenames=()).guess_type)

    def upload(name: str, header: str = "") -> Any:
        lines = f'--b\r\nContent-Disposition: form-data; name="from"\r\n\r\n{number.phone_number_id}\r\n'
        lines += f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        lines += f"{header}\r\nx\r\n--b--\r\n"
        content_type = "multipart/form-data; boundary=b"
        return api.client.generic("POST", PATH, lines.encode(), content_type, headers=api.headers)

    # Many HTTP libraries write this for a part without a type.
    untyped = "Content-Type: application/octet-stream\r\n"
    for name, header, mime_type in (
        ("photo.png", "", "image/png"),
        ("photo.png", untyped, "image/png"),
        ("voice.OGG", untyped, "audio/ogg"),
        ("film.3gp", untyped, "video/3gpp"),
        ("photo.png", "Content-Type: image/jpeg\r\n", "image/jpeg"),
    ):
        media = upload(name, header).json()["id"]
        assert api.get(f"{PATH}/{media}?meta=true").json()["mime_type"] == mime_type
    nameless = upload("photo", untyped)
    assert (nameless.status_code, nameless.json()["error"]["code"]) == (400, 100)
    assert "of type 'application/octet-stream'" in nameless.json()["error"]["message"]
    assert list(assert_error(upload("photo"), 400, "invalid_request")["details"]["fields"]) == ["type"]
