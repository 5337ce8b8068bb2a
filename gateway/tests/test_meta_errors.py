"""The catalogue of Meta's error codes, and the places that show it."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from gateway.meta_errors import (
    LONG_THROTTLES,
    SHORT_THROTTLES,
    TOKEN_PROBLEMS,
    catalogue,
    error_code,
    explained,
    in_metas_form,
)
from gateway.upstream.calls import error_body

ERROR = b'{"error" : {"message": "(#131047) Re-engagement message", "code":131047, "n": 1.0}}'


def test_every_code_that_the_service_classifies_is_known() -> None:
    for code in (*SHORT_THROTTLES, *LONG_THROTTLES, *TOKEN_PROBLEMS, 100, 131057):
        assert error_code(code) is not None, code


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param([131060], id="messages of coexistence numbers"),
        pytest.param([131058], id="hello_world"),
        pytest.param(range(147001, 147006), id="usernames"),
        pytest.param(
            [*range(138000, 138008), 138009, *range(138011, 138016), *range(138017, 138025)], id="calls"
        ),
        pytest.param([139006], id="metrics of flows"),
        pytest.param([*range(2494164, 2494169), 2494176, 2494177, 2494179], id="sign-ups in the app"),
    ],
)
def test_the_codes_of_what_is_passed_on_are_known(codes: Iterable[int]) -> None:
    assert [code for code in codes if error_code(code) is None] == []


def test_about_a_hundred_codes_are_whole() -> None:
    codes = catalogue()
    assert len(codes) > 100
    assert len({code.name for code in codes}) == len(codes)
    for code in codes:
        for sentence in (code.cause, code.repair):
            assert sentence[0].isupper() or sentence[0].isdigit(), code.name
            assert sentence.endswith("."), code.name
        assert code.page.startswith("https://developers.facebook.com/"), code.name
        assert code.again


def test_what_waiting_repairs_is_said_to_be_sent_later() -> None:
    assert {(error_code(code) or catalogue()[0]).retry for code in SHORT_THROTTLES | LONG_THROTTLES} == {
        "later"
    }


@pytest.mark.parametrize(
    ("code", "subcode", "name"),
    [
        (131047, None, "131047"),
        (250, None, "200-299"),
        (100, 2388040, "2388040"),
        (100, 33, "33"),
        (100, 999, "100"),
        (999_999, None, None),
        ("131047", None, None),
        ([131047], None, None),
        (True, None, None),
        (None, None, None),
    ],
)
def test_a_code_is_found_by_its_subcode_first(code: Any, subcode: Any, name: str | None) -> None:
    found = error_code(code, subcode)
    assert (found.name if found else None) == name


def test_words_stand_beside_the_source_and_every_byte_of_meta_stays() -> None:
    response = explained(error_body(ERROR), "req_1")
    body = json.loads(response)
    known = error_code(131047)
    assert known is not None
    assert list(body) == ["source", "hint", "doc_url", "request_id", "error"]
    assert (body["hint"], body["request_id"]) == (f"{known.cause} {known.repair}", "req_1")
    assert body["doc_url"] == f"{settings.BASE_URL}/errors/131047"
    assert response.endswith(ERROR[1:])


@pytest.mark.parametrize(
    "written", [b"{}", b'{"error":5}', b'{"error":{"code":999999}}', b' { "error":{"code":"x"}}']
)
def test_for_an_unknown_code_only_the_request_id_is_added(written: bytes) -> None:
    response = explained(error_body(written), "req_1")
    assert set(json.loads(response)) - {"error"} == {"source", "request_id"}


@pytest.mark.parametrize(
    "written",
    [ERROR, b"{}", b' { "error": {"code": 131000, "x": ",\\"hint\\":"}}', b'{"a":1,"source":"meta"}'],
)
def test_on_the_cloud_apis_paths_metas_bytes_stand_alone(written: bytes) -> None:
    for response in (
        explained(error_body(written), None),
        explained(error_body(written), "req_1"),
        error_body(written),
    ):
        assert in_metas_form(response) == written


@pytest.mark.parametrize(
    "body", [b'{"source":"whabuzz"}', b'{"error":{"source":"meta"}}', b'{"a":"\\"source\\":\\"meta\\""}']
)
def test_what_is_no_error_of_meta_stays_as_it_is(body: bytes) -> None:
    assert explained(body, "req_1") == in_metas_form(body) == body


def test_each_code_has_a_page_of_its_own(client: Client) -> None:
    page = client.get("/errors/131047")
    assert page.status_code == 200
    text = page.content.decode()
    known = error_code(131047)
    assert known is not None
    for shown in (known.title, known.cause, known.repair, known.page):
        assert shown in text


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/errors/250", "/errors/200-299"),
        ("/errors/7", "/docs/whatsapp-errors/"),
        ("/errors/abc", "/docs/whatsapp-errors/"),
        ("/errors", "/docs/errors/"),
    ],
)
def test_other_codes_lead_on(client: Client, path: str, leads_to: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer["Location"]) == (302, leads_to)
