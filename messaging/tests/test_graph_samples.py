"""Every sample call in Meta's documentation, sent to a scripted server. Each call arrives unchanged, or is rejected.

`graph_samples.json` has the calls of three public mirrors: method, path, parameters, and the page of each call
(`source`). It also has one call for each operation that appears only in Meta's OpenAPI description. Long texts,
addresses and recipients are replaced by our own values. Commands with mistakes on their page (a comment in JSON, a
missing quote) are corrected. Calls to other hosts are left out: payment providers, a business's own server, and the
download from a media file's URL. docs/cloud-api.md lists the rejected calls.
"""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from gateway.clock import now
from messaging.cloud_api.parameters import WRITTEN_AS_JSON, graph_send
from messaging.models import KnownMedia, KnownNode, MessageTemplate
from messaging.tests.conftest import connected_number
from messaging.tests.test_cloud_api import error_of
from phone_numbers.models import BusinessAccount
from tenants.models import Tenant
from tests.fixtures import Api, shared_rows
from tests.receiver import Receiver
from tests.scripted_graph import TOKEN_REFUSED, Received, ScriptedGraph
from tests.simulated import SimulatedAccount

pytestmark = pytest.mark.django_db

SAMPLES: list[dict[str, Any]] = orjson.loads((Path(__file__).parent / "graph_samples.json").read_bytes())
IDS = {
    "{account}": "100200300400500",
    "{phone}": "200300400500600",
    "{template}": "410000000000001",
    "{flow}": "600000000000001",
    "{group}": "Y2FwaV9ncm91cDoxOTUwNTU1MDA3OToxMjAzNjM",
    "{media}": "510000000000001",
    "{foreign}": "999000999000999",
    "{app}": "900100200300400",
    "{code}": "4O4YGZEG3RIVE1",
}
OWN_ANSWERS = {"debug_token", "{account}/subscribed_apps"}
"""Paths that the gateway answers itself."""
REFUSED = {
    "me/application_details": (400, 100, 33),
    "oauth/access_token": (400, 100),
    "{account}/assigned_users": (403, 10),
    "{app}/connected_client_businesses": (400, 100, 33),
    "{app}/whatsapp_business_solution": (400, 100, 33),
    "{app}/whatsapp_business_solutions": (400, 100, 33),
    "{phone}/messages_encrypted": (403, 10),
}
"""Paths that are always rejected, each with its error. docs/cloud-api.md gives the reasons."""
EVERYTHING = orjson.dumps(
    {
        "id": "410000000000002",
        "success": True,
        "status": "PENDING",
        "category": "UTILITY",
        "messaging_product": "whatsapp",
        "contacts": [{"input": "919812345678", "wa_id": "919812345678"}],
        "messages": [{"id": "wamid.SAMPLE"}],
        "url": "https://lookaside.fbsbx.com/x",
        "mime_type": "image/jpeg",
    }
)


@pytest.fixture
def world(tenant: Tenant, graph: ScriptedGraph) -> ScriptedGraph:
    """A tenant that has every object named in the samples, and a server that accepts every call."""
    ids = SimulatedAccount(IDS["{account}"], [IDS["{phone}"]], ["+91 98000 00001"], "EAAsample", "")
    number = connected_number(tenant, ids)
    MessageTemplate.objects.create(
        tenant=tenant,
        account=number.account,
        environment="live",
        template_id=IDS["{template}"],
        name="greeting",
        language="en_US",
        document="{}",
        changed_at=now(),
    )
    scope = {"tenant_id": tenant.id, "environment": "live"}
    for kind in ("flow", "group"):
        KnownNode.objects.create(**scope, node_id=IDS[f"{{{kind}}}"], kind=kind, waba_id=IDS["{account}"])
    KnownMedia.objects.create(**scope, media_id=IDS["{media}"], phone_number_id=IDS["{phone}"])
    graph.always_answers(EVERYTHING)
    return graph


def test_there_are_samples_of_many_pages() -> None:
    assert len(SAMPLES) > 320
    assert len({sample["source"] for sample in SAMPLES}) > 150


def _name(sample: dict[str, Any]) -> str:
    return f"{sample['method']} {sample['path']}"


def _place(sample: dict[str, Any]) -> tuple[str, str, str]:
    """The method, the path and the kind of node of a sample."""
    path: str = sample["path"]
    node = path.partition("/")[0]
    for name, value in IDS.items():
        path = path.replace(name, value)
    return sample["method"], f"/{path}", node


def _is_answered_by_listener(sample: dict[str, Any]) -> bool:
    method, path, _ = _place(sample)
    return method == "POST" and graph_send(f"/v25.0{path}") is not None


def test_a_sample_goes_up_unchanged_or_is_refused(
    api: Api, world: ScriptedGraph, receiver: Receiver, subtests: pytest.Subtests
) -> None:
    for sample in SAMPLES:
        if not _is_answered_by_listener(sample):
            with subtests.test(_name(sample)), shared_rows():
                _check(sample, api, world, receiver)


@pytest.mark.django_db(transaction=True)
def test_a_sample_that_the_listener_answers_goes_up_unchanged_or_is_refused(
    api: Api, world: ScriptedGraph, receiver: Receiver, subtests: pytest.Subtests
) -> None:
    for sample in filter(_is_answered_by_listener, SAMPLES):
        with subtests.test(_name(sample)):
            _check(sample, api, world, receiver)


@pytest.mark.django_db(transaction=True)
def test_the_token_is_checked_whichever_call_meta_refuses_for_it(
    api: Api, world: ScriptedGraph, receiver: Receiver, subtests: pytest.Subtests
) -> None:
    world.always_answers(TOKEN_REFUSED, status=401)
    unlike = {
        (_name(sample), *sorted(sample.keys() & {"form", "json", "multipart"})): sample for sample in SAMPLES
    }
    for sample in unlike.values():
        BusinessAccount.objects.update(token_questioned_at=None, token_invalid_at=None)
        world.received.clear()
        _replayed(api, sample, receiver)
        authorised = [call.headers.get("authorization") for call in world.received]
        if "Bearer EAAsample" in authorised:
            with subtests.test(_name(sample)):
                assert world.received[-1].path == "/debug_token"


def _check(sample: dict[str, Any], api: Api, world: ScriptedGraph, receiver: Receiver) -> None:
    world.received.clear()
    answer, (method, path, node) = _replayed(api, sample, receiver), _place(sample)
    calls = [call for call in world.received if call.path != "/debug_token"]
    if (refused := REFUSED.get(sample["path"])) or node == "{foreign}":
        error_of(answer, *(refused or (400, 100, 33)))
        assert calls == []
        return
    if sample["path"] in OWN_ANSWERS or _sets_callback(sample):
        assert answer.status_code in {200, 403}, answer.content
        return
    if "to" not in _members(sample) and "recipient" not in _members(sample) and _is_send(sample):
        error_of(answer, 400, 131008)
        assert calls == []
        return
    assert answer.status_code == 200, answer.content
    call = calls[-1]
    assert (call.method, call.path) == (method, path)
    _assert_same_parameters(call, sample)


def _replayed(api: Api, sample: dict[str, Any], receiver: Receiver) -> Any:
    method, path, _ = _place(sample)
    address = f"/v25.0{path}" + (f"?{urlencode(sample['query'])}" if "query" in sample else "")
    headers = dict(api.headers)
    if "json" in sample:
        body = orjson.dumps(sample["json"])
        if b"override_callback_uri" in body:
            # The callback answers the handshake, so its URL must be real.
            body = body.replace(b"https://shop.example/a", receiver.url.encode())
        return api.client.generic(method, address, body, "application/json", headers=headers)
    if "form" in sample:
        body = urlencode(sample["form"]).encode()
        return api.client.generic(method, address, body, "application/x-www-form-urlencoded", headers=headers)
    if "multipart" in sample:
        files = {name: SimpleUploadedFile("a.jpg", b"x", "image/jpeg") for name in sample["files"]}
        return api.client.post(address, {**sample["multipart"], **files}, headers=headers)
    return api.client.generic(method, address, b"", "", headers=headers)


def _members(sample: dict[str, Any]) -> dict[str, Any]:
    """All members of a sample. JSON texts of objects are parsed."""
    written = {
        **sample.get("query", {}), **sample.get("form", {}),
        **sample.get("multipart", {}), **sample.get("json", {}),
    }  # fmt: skip
    return _with_objects(written)


def _with_objects(members: dict[str, Any]) -> dict[str, Any]:
    return {name: _parsed(value) if name in WRITTEN_AS_JSON else value for name, value in members.items()}


def _parsed(value: Any) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _is_send(sample: dict[str, Any]) -> bool:
    return sample["path"].endswith("messages") and _members(sample).get("status") != "read"


def _sets_callback(sample: dict[str, Any]) -> bool:
    return sample["path"] == "{phone}" and "webhook_configuration" in _members(sample)


def _assert_same_parameters(call: Received, sample: dict[str, Any]) -> None:
    asked = _members(sample)
    if sample.get("files"):
        for name, value in {**asked, **dict.fromkeys(sample["files"], "x")}.items():
            assert f'name="{name}"'.encode() in call.body
            assert str(value).encode() in call.body
        return
    if call.body and call.body.startswith(b"{"):
        got = _with_objects(orjson.loads(call.body))
    else:
        got = {name: _parsed(value) for name, value in parse_qsl(call.query, keep_blank_values=True)}
        asked = {name: _parsed(value) for name, value in asked.items()}
    got.pop("appsecret_proof", None)
    if sample["path"] == "{media}":
        # The file is recorded with this number, and Meta refuses the number of received files.
        asked.pop("phone_number_id", None)
    if _is_send(sample):
        got = {"messaging_product": "whatsapp", **got}
        asked = {
            "messaging_product": "whatsapp",
            **asked,
            **({"type": "text"} if "type" not in asked else {}),
        }
    assert got == asked
