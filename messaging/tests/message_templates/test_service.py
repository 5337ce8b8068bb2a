"""`/v1/templates*`: the responses are Meta's own, and the mirror matches them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
import requests
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from gateway.clock import now
from messaging import tasks
from messaging.media import uploads
from messaging.message_templates import mirror
from messaging.models import MessageTemplate, TemplateMirror
from messaging.tests.conftest import connected_number
from messaging.tests.message_templates.bodies import PNG, numbered, order_update
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, assert_service_headers
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = pytest.mark.django_db

BIG_ID = "9223372036854775807"


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [template["name"] for template in answer.json()["data"]]


def created(api: Api, body: dict[str, Any]) -> str:
    answer = api.post("/v1/templates", body)
    assert answer.status_code == 200, answer.content
    return str(answer.json()["id"])


def upstream_templates(simulator: RunningSimulator, account: SimulatedAccount) -> list[dict[str, Any]]:
    return list(simulator.control("GET", f"accounts/{account.waba_id}")["templates"])


def made_elsewhere(simulator: RunningSimulator, account: SimulatedAccount, *bodies: dict[str, Any]) -> None:
    """Create templates with the account's token, like a business that uses Meta's own manager."""
    for body in bodies:
        answer = requests.post(
            f"{simulator.url}/v25.0/{account.waba_id}/message_templates",
            json=body,
            headers={"Authorization": f"Bearer {account.access_token}"},
            timeout=10,
        )
        assert answer.ok, answer.text


def deleted_elsewhere(simulator: RunningSimulator, account: SimulatedAccount, name: str) -> None:
    """Delete a template with the account's token, like a business that uses Meta's own manager."""
    answer = requests.delete(
        f"{simulator.url}/v25.0/{account.waba_id}/message_templates?name={name}",
        headers={"Authorization": f"Bearer {account.access_token}"},
        timeout=10,
    )
    assert answer.ok, answer.text


def upload(api: Api, content: bytes = PNG, *, mime_type: str = "image/png", **fields: str) -> Any:
    client = Client(raise_request_exception=False)
    form = {"file": SimpleUploadedFile("sample.png", content, content_type=mime_type), **fields}
    return client.post("/v1/templates/media-handle", form, headers=api.headers)


@pytest.fixture
def sync_now(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that makes every account due and runs the tasks of beat and the workers."""
    jobs: list[dict[str, str]] = []

    def enqueue(task: str, **job: str) -> bool:
        assert task == tasks.sync_templates.name
        jobs.append(job)
        return True

    monkeypatch.setattr(mirror, "enqueue", enqueue)

    def run() -> None:
        TemplateMirror.objects.update(next_sync_at=now())
        mirror.start_due_syncs()
        while jobs:
            tasks.sync_templates(**jobs.pop(0))

    return run


# --- Create -------------------------------------------------------------------------------------------------


def test_create_passes_the_callers_bytes_and_the_upstreams_answer(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    raw = orjson.dumps(order_update(), option=orjson.OPT_INDENT_2)
    answer = api.post("/v1/templates", raw)
    assert answer.status_code == 200
    assert list(answer.json()) == ["id", "status", "category"]
    assert answer.json()["status"] == "PENDING"
    assert_service_headers(answer)
    assert "X-Service-Error-Source" not in answer
    requests_ = simulator.control("GET", f"requests?node={account.waba_id}&limit=100")["data"]
    sent = [row["body"] for row in requests_ if row["path"].endswith("/message_templates")]
    assert sent == [raw.decode()]


def test_a_created_template_is_listed_at_once(api: Api, number: PhoneNumber) -> None:
    template_id = created(api, order_update())
    [listed] = api.get("/v1/templates").json()["data"]
    assert (listed["id"], listed["status"], listed["language"]) == (template_id, "PENDING", "en_US")
    assert listed["components"] == order_update()["components"]


def test_a_created_template_is_listed_with_the_category_that_the_upstream_gave_it(
    api: Api, number: PhoneNumber
) -> None:
    answer = api.post("/v1/templates", {**order_update(), "name": "big_promo"})
    assert answer.json()["category"] == "MARKETING"
    [listed] = api.get("/v1/templates").json()["data"]
    assert (order_update()["category"], listed["category"]) == ("UTILITY", "MARKETING")


def test_the_account_is_named_in_the_query_or_in_the_body_and_never_sent_upstream(
    api: Api, tenant: Tenant, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    second = connected_number(tenant, simulator.account())
    fields = assert_error(api.post("/v1/templates", order_update()), 400, "invalid_request")["details"][
        "fields"
    ]
    assert "several" in fields["waba_id"][0]
    body = order_update()
    assert api.post("/v1/templates", {"waba_id": account.waba_id, **body}).status_code == 200
    assert api.post(f"/v1/templates?waba_id={second.account.waba_id}", body).status_code == 200
    named = {**order_update("second_name"), "from": f"+{second.digits}"}
    assert api.post("/v1/templates", named).status_code == 200
    assert api.post(f"/v1/templates?from={second.digits}", order_update("third_name")).status_code == 200
    of_first = [template["name"] for template in upstream_templates(simulator, account)]
    assert of_first == ["order_update"]
    assert set(names(api.get(f"/v1/templates?waba_id={second.account.waba_id}"))) == {
        "order_update",
        "second_name",
        "third_name",
    }
    rows = simulator.control("GET", f"requests?node={second.account.waba_id}&limit=100")["data"]
    assert not any('"from"' in row["body"] or "waba_id" in row["body"] for row in rows if row["body"])


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ("waba_id=1", "waba_id"),
        ("waba_id=", "waba_id"),
        ("from=1", "from"),
        ("from=letters", "from"),
        ("from={number}&waba_id=1", "waba_id"),
    ],
)
def test_an_account_that_is_not_the_tenants_is_named(
    api: Api, number: PhoneNumber, place: str, field: str
) -> None:
    query = place.format(number=number.phone_number_id)
    for answer in (
        api.post(f"/v1/templates?{query}", order_update()),
        api.get(f"/v1/templates?{query}"),
        api.post(f"/v1/templates/sync?{query}"),
        api.get(f"/v1/templates/library?{query}"),
    ):
        assert field in assert_error(answer, 400, "invalid_request")["details"]["fields"]


def test_without_an_account_there_is_nothing_to_create_on(api: Api) -> None:
    error = assert_error(api.post("/v1/templates", order_update()), 400, "invalid_request")
    assert "connect a number" in error["details"]["fields"]["waba_id"][0]
    for odd in (5, ["1"], " ", "\0"):
        error = assert_error(
            api.post("/v1/templates", {**order_update(), "waba_id": odd}), 400, "invalid_request"
        )
        assert "a string" in error["details"]["fields"]["waba_id"][0]
    assert names(api.get("/v1/templates")) == []
    assert api.post("/v1/templates/sync").json() == {"synced": 0, "added": 0, "updated": 0, "removed": 0}
    assert_error(api.get("/v1/templates/library"), 400, "invalid_request")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"null"])
def test_a_body_that_is_no_object_is_400(api: Api, number: PhoneNumber, body: bytes) -> None:
    answer = api.post("/v1/templates", body)
    assert answer.status_code == 400


def test_what_the_upstream_refuses_passes_through(api: Api, number: PhoneNumber) -> None:
    created(api, order_update())
    answer = api.post("/v1/templates", order_update())
    assert answer.status_code == 400
    assert answer["X-Service-Error-Source"] == "meta"
    assert next(iter(answer.json())) == "source"
    assert answer.json()["error"]["error_subcode"] == 2388024
    assert len(names(api.get("/v1/templates"))) == 1


@pytest.mark.parametrize("action", ["reset", "html"])
def test_a_creation_without_a_usable_answer_is_502_and_found_by_the_next_read(
    api: Api,
    number: PhoneNumber,
    account: SimulatedAccount,
    simulator: RunningSimulator,
    sync_now: Callable,
    action: str,
) -> None:
    sync_now()
    rule = {"action": action, "when": "after", "match": {"path": "message_templates", "method": "POST"}}
    simulator.faults(rule)
    assert_error(api.post("/v1/templates", order_update()), 502, "meta_unreachable")
    simulator.faults()
    assert len(upstream_templates(simulator, account)) == 1
    assert TemplateMirror.objects.get().next_sync_at < now() + timedelta(minutes=1)
    sync_now()
    assert names(api.get("/v1/templates")) == ["order_update"]


# --- List ---------------------------------------------------------------------------------------------------


def test_more_templates_than_a_page_has_are_all_read(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    simulator.control(
        "PUT", "settings", {"throttling": {"management": False}, "templates": {"review_ms": 600_000}}
    )
    made_elsewhere(simulator, account, *(numbered(index) for index in range(110)))
    answer = api.post("/v1/templates/sync")
    assert answer.json() == {"synced": 110, "added": 110, "updated": 0, "removed": 0}
    assert simulator.calls(account.waba_id).count("GET message_templates") == 2
    assert names(api.get("/v1/templates?limit=200")) == [
        f"numbered_{index}" for index in reversed(range(110))
    ]
    assert len(names(api.get("/v1/templates"))) == 50
    assert api.post("/v1/templates/sync").json() == {"synced": 110, "added": 0, "updated": 0, "removed": 0}


def test_the_list_is_filtered(api: Api, number: PhoneNumber) -> None:
    created(api, order_update())
    created(api, order_update("order_update_hindi", language="hi"))
    created(api, order_update("summer_sale", category="MARKETING"))
    MessageTemplate.objects.filter(name="summer_sale").update(status="APPROVED")

    def found(query: str) -> set[str]:
        return set(names(api.get(f"/v1/templates?{query}")))

    assert found("name=order") == found("name=UPDATE") == {"order_update", "order_update_hindi"}
    assert found("name=100%25") == set()
    assert found("status=APPROVED") == found("status=approved") == {"summer_sale"}
    assert len(found("status=APPROVED,PENDING")) == 3
    assert found("language=en-US") == found("language=en_US") == {"order_update", "summer_sale"}
    assert found("language=hi&name=hindi") == {"order_update_hindi"}


def test_bad_filters_are_named(api: Api, number: PhoneNumber) -> None:
    values = ("status=A%20B", "category=%27", "name=%00", f"language={'x' * 40}")
    for query in ("limit=0", "limit=201", "limit=x", "cursor=%21", *values):
        error = assert_error(api.get(f"/v1/templates?{query}"), 400, "invalid_request")
        assert query.partition("=")[0] in error["details"]["fields"], query


def test_ids_beyond_the_safe_integers_stay_texts(api: Api, number: PhoneNumber) -> None:
    view = {
        "id": int(BIG_ID),
        "name": "big",
        "language": "en-US",
        "status": "APPROVED",
        "category": "UTILITY",
    }
    mirror.store_one(number.account, {**view, "id": BIG_ID}, since=now())
    [listed] = api.get("/v1/templates?language=en_US").json()["data"]
    assert listed["id"] == BIG_ID
    assert MessageTemplate.objects.get().template_id == BIG_ID


# --- One template -------------------------------------------------------------------------------------------


def test_get_is_the_upstreams_answer_and_brings_the_mirror_up_to_date(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    template_id = created(api, order_update())
    simulator.control("POST", f"templates/{template_id}", {"event": "PAUSED"})
    answer = api.get(f"/v1/templates/{template_id}")
    assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["status"]) == (template_id, "PAUSED")
    assert "source" not in answer.json()
    assert api.get("/v1/templates?status=PAUSED").json()["data"] == [answer.json()]


def test_a_template_that_the_upstream_no_longer_has_leaves_the_list(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    template_id = created(api, order_update())
    deleted_elsewhere(simulator, account, "order_update")
    answer = api.get(f"/v1/templates/{template_id}")
    assert (answer.status_code, answer["X-Service-Error-Source"]) == (400, "meta")
    assert names(api.get("/v1/templates")) == []
    assert_error(api.get(f"/v1/templates/{template_id}"), 404, "not_found")


def test_an_edit_passes_through_and_shows(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    template_id = created(api, order_update())
    simulator.control("POST", f"templates/{template_id}", {"event": "APPROVED"})
    components = [{"type": "BODY", "text": "Your order {{1}} left.", "example": {"body_text": [["17"]]}}]
    named = {"waba_id": number.account.waba_id, "from": number.phone_number_id}
    answer = api.post(f"/v1/templates/{template_id}", {"components": components, **named})
    assert answer.status_code == 200
    [row] = simulator.control("GET", f"requests?node={template_id}")["data"]
    assert orjson.loads(row["body"]) == {"components": components}, "the account is not passed on"
    assert answer.json()["success"] is True
    [listed] = api.get("/v1/templates").json()["data"]
    assert (listed["status"], listed["components"]) == ("PENDING", components)
    again = api.post(f"/v1/templates/{template_id}", {"components": components})
    assert (again.status_code, again.json()["source"]) == (400, "meta")


def test_delete_takes_one_language_or_the_whole_name(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    ids = [created(api, order_update(language=language)) for language in ("en_US", "hi", "ta")]
    answer = api.delete(f"/v1/templates/{ids[0]}")
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert {row["id"] for row in upstream_templates(simulator, account)} == set(ids[1:])
    assert len(names(api.get("/v1/templates"))) == 2
    assert_error(api.delete(f"/v1/templates/{ids[0]}"), 404, "not_found")
    assert_error(api.delete(f"/v1/templates/{ids[1]}?all_languages=perhaps"), 400, "invalid_request")
    assert api.delete(f"/v1/templates/{ids[1]}?all_languages=true").status_code == 200
    assert upstream_templates(simulator, account) == []
    assert names(api.get("/v1/templates")) == []


@pytest.mark.parametrize(
    ("query", "asked"), [("", "hsm_id=41&name=kept"), ("?all_languages=true", "name=kept")]
)
def test_each_deletion_names_the_template(
    api: Api, number: PhoneNumber, graph: ScriptedGraph, query: str, asked: str
) -> None:
    mirror.store_one(number.account, {"id": "41", "name": "kept"}, since=now())
    graph.answers("DELETE", f"/{number.account.waba_id}/message_templates", {"success": True})
    assert api.delete(f"/v1/templates/41{query}").status_code == 200
    assert graph.received[-1].query.partition("&appsecret_proof=")[0] == asked


def test_what_cannot_be_deleted_stays(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    template_id = created(api, order_update())
    simulator.control("POST", f"templates/{template_id}", {"event": "DISABLED"})
    answer = api.delete(f"/v1/templates/{template_id}")
    assert (answer.status_code, answer.json()["source"]) == (400, "meta")
    assert len(names(api.get("/v1/templates"))) == 1


def test_an_unknown_template_is_404_without_asking_upstream(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    before = simulator.total()
    for template_id in ("1", "x" * 300, "%00", "..", BIG_ID):
        for method, body in (("GET", None), ("POST", {}), ("DELETE", None)):
            assert_error(api.request(method, f"/v1/templates/{template_id}", body), 404, "not_found")
    assert simulator.total() == before


def test_a_token_that_fails_is_401_and_marks_the_account(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    template_id = created(api, order_update())
    token = BusinessAccount.objects.get().access_token
    simulator.control("PATCH", "tokens", {"access_token": token, "invalidated": True})
    answer = api.get(f"/v1/templates/{template_id}")
    assert (answer.status_code, answer.json()["source"]) == (401, "meta")
    assert BusinessAccount.objects.get().token_invalid_at is not None


# --- Sync ---------------------------------------------------------------------------------------------------


def test_sync_counts_what_it_added_updated_and_removed(
    api: Api, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    made_elsewhere(simulator, account, order_update(), order_update("second"), order_update("third"))
    assert api.post("/v1/templates/sync").json() == {"synced": 3, "added": 3, "updated": 0, "removed": 0}
    ids = {row["name"]: row["id"] for row in upstream_templates(simulator, account)}
    simulator.control("POST", f"templates/{ids['second']}", {"event": "APPROVED"})
    MessageTemplate.objects.filter(name="third").update(template_id="404")
    assert api.post("/v1/templates/sync").json() == {"synced": 3, "added": 1, "updated": 1, "removed": 1}
    assert names(api.get("/v1/templates?status=APPROVED")) == ["second"]
    mirror.delete(number.account, name="second")
    assert api.post("/v1/templates/sync").json() == {"synced": 3, "added": 0, "updated": 1, "removed": 0}
    assert names(api.get("/v1/templates?status=APPROVED")) == ["second"], "the upstream did not delete it"


def test_one_account_that_fails_does_not_stop_the_others(
    api: Api, tenant: Tenant, number: PhoneNumber, account: SimulatedAccount, simulator: RunningSimulator
) -> None:
    second = simulator.account()
    connected_number(tenant, second)
    made_elsewhere(simulator, account, order_update())
    made_elsewhere(simulator, second, order_update())
    simulator.faults(
        {"action": "error", "code": 2, "match": {"path": f"{account.waba_id}/message_templates"}}
    )
    answer = api.post("/v1/templates/sync")
    assert answer.status_code == 200
    assert answer.json() == {"synced": 1, "added": 1, "updated": 0, "removed": 0, "failed": [account.waba_id]}
    alone = api.post("/v1/templates/sync", {"waba_id": account.waba_id})
    assert (alone.json()["source"], alone.json()["error"]["code"]) == ("meta", 2)


def test_a_list_that_breaks_off_changes_nothing(api: Api, number: PhoneNumber, graph: ScriptedGraph) -> None:
    mirror.store_one(number.account, {"id": "1", "name": "kept"}, since=now())
    edge = f"/{number.account.waba_id}/message_templates"
    paging = {"cursors": {"after": "MQ"}, "next": "https://graph.example/next"}
    graph.answers("GET", edge, {"data": [{"id": "2", "name": "first"}], "paging": paging})
    graph.answers("GET", edge, {"error": {"code": 1, "message": "Unknown"}}, status=500)
    answer = api.post("/v1/templates/sync")
    assert (answer.status_code, answer.json()["source"]) == (500, "meta")
    assert names(api.get("/v1/templates")) == ["kept"]


# --- Library and samples ------------------------------------------------------------------------------------


def test_the_library_is_the_upstreams_with_links_to_the_service(
    api: Api, number: PhoneNumber, settings: Any
) -> None:
    answer = api.get("/v1/templates/library?category=UTILITY&limit=2&waba_id=" + number.account.waba_id)
    assert answer.status_code == 200
    body = answer.json()
    assert len(body["data"]) == 2
    assert set(body["data"][0]) >= {"id", "name", "language", "category", "body", "buttons"}
    link = body["paging"]["next"]
    assert link.startswith(f"{settings.BASE_URL}/v1/templates/library?")
    following = api.get(link.removeprefix(settings.BASE_URL))
    assert following.json()["data"][0]["id"] not in {entry["id"] for entry in body["data"]}


@pytest.mark.parametrize(
    ("id_", "facts"),
    [
        (UUID(int=1), {"token_invalid_at": now()}),
        (UUID(int=1), {"taken_away": "account_removed"}),
        (UUID(int=1), {"taken_away": "account_restricted"}),
        (UUID(int=2**128 - 1), {}),
    ],
)
def test_the_library_is_asked_for_with_the_oldest_account_that_works(
    api: Api, tenant: Tenant, number: PhoneNumber, graph: ScriptedGraph, id_: UUID, facts: dict[str, Any]
) -> None:
    values = {"tenant": tenant, "environment": "live", "waba_id": "100200300400501", "id": id_}
    BusinessAccount.objects.create(**values, access_token="EAAother", **facts)
    graph.answers("GET", "/message_template_library", {"data": []})
    assert api.get("/v1/templates/library").status_code == 200
    assert graph.received[-1].headers["authorization"] == f"Bearer {number.account.access_token}"


def test_the_upstreams_links_with_its_token_never_reach_the_caller(
    api: Api, number: PhoneNumber, graph: ScriptedGraph, settings: Any
) -> None:
    link = "https://graph.example/v25.0/message_template_library?access_token=EAAsecret&limit=1&after=MQ"
    body = (
        b'{"data":[{"id":"1", "n":1.50}], "paging":{"cursors":{"after":"MQ"},"next":"%s","previous":"%s"}}'
        % (link.encode(), link.replace("after=MQ", "before=MA").encode())
    )
    graph.answers("GET", "/message_template_library", body)
    answer = api.get("/v1/templates/library?limit=1")
    assert b"EAAsecret" not in answer.content
    assert answer.content.startswith(
        b'{"data":[{"id":"1", "n":1.50}], "paging":{"cursors":{"after":"MQ"},"next":'
    )
    own = f"{settings.BASE_URL}/v1/templates/library?limit=1&"
    paging = answer.json()["paging"]
    assert (paging["next"], paging["previous"]) == (f"{own}after=MQ", f"{own}before=MA")


def test_a_sample_gives_a_handle(api: Api, number: PhoneNumber, simulator: RunningSimulator) -> None:
    answer = upload(api)
    assert answer.status_code == 200, answer.content
    assert set(answer.json()) == {"h"}
    assert answer.json()["h"].startswith("4::")
    assert_service_headers(answer)
    large = upload(api, PNG + b"\0" * 6_000_000)
    assert large.status_code == 200, large.content


def test_an_upload_that_breaks_off_is_continued(
    api: Api, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.faults({"action": "reset", "match": {"path": "upload:", "method": "POST"}, "times": 1})
    answer = upload(api)
    assert answer.status_code == 200, answer.content
    assert answer.json()["h"].startswith("4::")


def test_bad_samples(api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_error(api.post("/v1/templates/media-handle", {}), 415, "unsupported_media_type")
    client = Client(raise_request_exception=False)
    nothing = client.post("/v1/templates/media-handle", {"file": "text"}, headers=api.headers)
    assert "file" in assert_error(nothing, 400, "invalid_request")["details"]["fields"]
    assert "file" in assert_error(upload(api, b""), 400, "invalid_request")["details"]["fields"]
    assert "waba_id" in assert_error(upload(api, waba_id="1"), 400, "invalid_request")["details"]["fields"]
    refused = upload(api, mime_type="text/plain")
    assert (refused.status_code, refused.json()["source"]) == (400, "meta")
    monkeypatch.setattr(uploads, "MAX_FILE_BYTES", 10)
    assert_error(upload(api), 413, "payload_too_large")
