"""Checks of a batch before it is stored: the content of each message's type, and templates against the mirror."""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from gateway.clock import isoformat, now
from gateway.upstream.contract import bodies
from messaging.batches import body
from messaging.message_templates import mirror
from messaging.models import Batch, TemplateMirror
from messaging.tests.message_templates.bodies import login_code, order_update
from phone_numbers.models import BusinessAccount, PhoneNumber
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db

PATH = "/v1/messages/batch"


@pytest.fixture(autouse=True)
def _no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)


def parameters(count: int) -> list[dict[str, str]]:
    return [{"type": "text", "text": "x"} for _ in range(count)]


def sent(
    body: int = 2, button: int = 1, *, name: str = "order_update", language: str = "en_US"
) -> dict[str, Any]:
    """A message with the template `order_update`, with the given number of parameters in each part."""
    components: list[dict[str, Any]] = [{"type": "body", "parameters": parameters(body)}]
    if button:
        components.append(
            {"type": "button", "sub_type": "url", "index": "0", "parameters": parameters(button)}
        )
    template = {"name": name, "language": {"code": language}, "components": components}
    return {"to": "+919812345678", "type": "template", "template": template}


@pytest.fixture
def fresh(number: PhoneNumber) -> None:
    """Make the mirror of the number's account fresh."""
    views = [
        {"id": "1", "status": "APPROVED", **order_update()},
        {"id": "2", "status": "APPROVED", **login_code()},
    ]
    mirror.store_list(number.account, views, read_at=now())
    TemplateMirror.objects.update(next_sync_at=now() + timedelta(hours=6))


def post(api: Api, number: PhoneNumber, *messages: dict[str, Any]) -> Any:
    return api.post(PATH, {"from": number.phone_number_id, "messages": list(messages)})


def test_a_message_without_the_content_of_its_type_is_refused(api: Api, number: PhoneNumber) -> None:
    good = {"to": "1", "type": "text", "text": {"body": "x"}}
    for kind in ("text", "image", "contacts", "interactive", "template", "reaction"):
        for content in ({}, {kind: None}, {kind: "hello"}, {kind: 5}, {"body": "x"}):
            answer = post(api, number, good, {"to": "1", "type": kind, **content})
            fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
            assert list(fields) == [f"messages[1].{kind}"], content
    assert not Batch.objects.exists()


def test_the_types_are_those_of_the_contract() -> None:
    assert set(bodies.MESSAGE_TYPES) == body.MESSAGE_TYPES


def test_a_type_that_meta_added_is_left_to_meta(api: Api, number: PhoneNumber) -> None:
    assert post(api, number, {"to": "1", "type": "hologram"}).status_code == 202


@pytest.mark.usefixtures("fresh")
def test_a_fresh_mirror_refuses_what_meta_would_refuse_ten_thousand_times(
    api: Api, number: PhoneNumber
) -> None:
    broken = sent()
    broken["template"]["components"][0]["parameters"][1]["text"] = "12 MG Road\nBengaluru"
    for wrong, says in (
        (broken, "has a line break, a tab or more than four blanks in a row (132018)"),
        (sent(name="order_updat"), "no template order_updat"),
        (sent(language="hi"), "no language hi, only en_US (132001)"),
        (sent(body=1), "takes 2 parameters in the body, not 1 (132000)"),
        (sent(body=3), "takes 2 parameters in the body, not 3 (132000)"),
        (sent(button=0), "takes 1 parameter in button 0, not 0 (131008)"),
    ):
        error = assert_error(post(api, number, sent(), wrong, wrong), 400, "invalid_request")
        assert error["details"]["indexes"] == [1, 2]
        assert says in error["details"]["fields"]["messages[1].template"][0]
        assert "Nothing was queued" in error["message"]
    assert not Batch.objects.exists()


@pytest.mark.usefixtures("fresh")
def test_a_deleted_template_and_one_of_another_account_are_none(api: Api, number: PhoneNumber) -> None:
    other = BusinessAccount.objects.create(
        tenant=number.tenant, environment="live", waba_id="9", access_token="E"
    )
    mirror.store_list(other, [{"id": "9", "status": "APPROVED", **order_update("elsewhere")}], read_at=now())
    mirror.delete(number.account, name="order_update")
    TemplateMirror.objects.update(next_sync_at=now() + timedelta(hours=6))
    for name in ("order_update", "elsewhere"):
        error = assert_error(post(api, number, sent(name=name)), 400, "invalid_request")
        assert f"no template {name}" in error["message"]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "state",
    [
        {"read_at": now() - timedelta(minutes=11)},
        {"next_sync_at": now() + timedelta(seconds=30)},
        {"failures": 1},
    ],
)
def test_a_mirror_that_may_be_stale_warns(api: Api, number: PhoneNumber, state: dict[str, Any]) -> None:
    TemplateMirror.objects.update(**state)
    answer = post(api, number, *[sent(body=1)] * 25, sent())
    assert answer.status_code == 202
    [warning] = answer.json()["warnings"]
    assert (warning["count"], warning["indexes"]) == (25, list(range(20)))
    assert "(132000)" in warning["message"]
    assert Batch.objects.get().total == 26


@pytest.mark.usefixtures("fresh")
def test_a_batch_for_later_warns_because_its_templates_may_change_until_then(
    api: Api, number: PhoneNumber
) -> None:
    batch = {"from": number.phone_number_id, "messages": [sent(), sent(name="of_tomorrow")]}
    answer = api.post(PATH, {**batch, "send_at": isoformat(now() + timedelta(days=1))})
    [warning] = answer.json()["warnings"]
    assert (answer.status_code, warning["indexes"]) == (202, [1])
    assert "no template of_tomorrow" in warning["message"]


def test_without_a_mirror_nothing_is_refused(api: Api, number: PhoneNumber) -> None:
    answer = post(api, number, sent())
    assert (answer.status_code, answer.json()["warnings"][0]["count"]) == (202, 1)


@pytest.mark.usefixtures("fresh")
def test_what_fits_or_cannot_be_checked_is_accepted_without_warnings(api: Api, number: PhoneNumber) -> None:
    for message in (
        sent(),
        sent(language="en-US"),
        # Meta writes the body of an authentication template, so its parameters are unknown until the next read.
        sent(name="login_code", body=1),
        {"to": "1", "type": "template", "template": {"name": "order_update"}},
        {"to": "1", "type": "template", "template": {"name": 5, "language": {"code": "en_US"}}},
    ):
        answer = post(api, number, message)
        assert (answer.status_code, answer.json()["warnings"]) == (202, []), message


@pytest.mark.usefixtures("fresh")
def test_optional_parameters_are_left_to_meta_and_those_that_no_template_takes_refused(
    api: Api, number: PhoneNumber
) -> None:
    buttons = [
        {"type": "QUICK_REPLY", "text": "Yes"},
        {"type": "VOICE_CALL", "text": "Call"},
        {"type": "URL", "text": "Open", "url": "https://shop.example"},
    ]
    view = {**order_update("yes_no"), "components": [{"type": "BODY", "text": "Hi {{1}}"}]}
    view["components"].append({"type": "BUTTONS", "buttons": buttons})
    mirror.store_list(number.account, [{"id": "3", "status": "APPROVED", **view}], read_at=now())
    TemplateMirror.objects.update(next_sync_at=now() + timedelta(hours=6))

    def filled(*parts: dict[str, Any]) -> dict[str, Any]:
        message = sent(body=1, button=0, name="yes_no")
        message["template"]["components"] += parts
        return message

    payload = [{"type": "payload", "payload": "YES-17"}]
    voice = [{"type": "ttl_minutes", "ttl_minutes": 100}, *payload]
    tap = {"type": "tap_target_configuration", "tap_target_configuration": [{"url": "https://shop.example"}]}
    optional = filled(
        {"type": "button", "sub_type": "quick_reply", "index": "0", "parameters": payload},
        {"type": "button", "sub_type": "voice_call", "index": 1, "parameters": voice},
        {"type": "tap_target_configuration", "parameters": [tap]},
    )
    answer = post(api, number, filled(), optional)
    assert (answer.status_code, answer.json()["warnings"]) == (202, [])
    link = {"type": "button", "sub_type": "url", "index": "2", "parameters": parameters(1)}
    header = {"type": "header", "parameters": parameters(1)}
    for extra, where in ((link, "button 2"), (header, "the header")):
        error = assert_error(post(api, number, filled(extra)), 400, "invalid_request")
        assert f"takes 0 parameters in {where}, not 1 (132000)" in error["message"]


@pytest.mark.usefixtures("fresh")
def test_what_the_mirror_cannot_count_is_left_to_meta(api: Api, number: PhoneNumber) -> None:
    row = number.account.templates.get(name="order_update")
    document = orjson.loads(row.document)
    document["components"].append({"type": "CAROUSEL", "cards": []})
    row.document = orjson.dumps(document).decode()
    row.save()
    assert post(api, number, sent(body=7)).json()["warnings"] == []
