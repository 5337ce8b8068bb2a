"""Graph requests. A parameter has the same effect and the same checks in query, form and JSON, and Meta receives it."""

import base64
import secrets
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
import requests
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from gateway.api.errors import InvalidRequest
from messaging.cloud_api import parameters
from messaging.models import KnownMedia
from messaging.notifications.incoming import accept
from messaging.tests import incoming
from messaging.tests.conftest import connected_number
from messaging.tests.test_cloud_api import CUSTOMER, TEXT, error_of, sent_bodies
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.credentials import api_keys
from tenants.models import AuditEntry, Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from tests.scripted_graph import ScriptedGraph
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

FORM = "application/x-www-form-urlencoded"


def upstream_calls(simulator: RunningSimulator, node: str) -> list[dict[str, Any]]:
    """The calls that Meta received for a node, oldest first."""
    rows: list[dict[str, Any]] = simulator.control("GET", f"requests?node={node}&limit=1000")["data"]
    return rows[::-1]


def read(query: str = "", body: bytes = b"", content_type: str = "application/json") -> parameters.Parameters:
    return parameters.read(query=query, content_type=content_type, body=body)


class TestReading:
    """Tests of the parser alone, without HTTP."""

    def test_json_keeps_its_bytes_and_the_query_comes_before_it(self) -> None:
        raw = b'{ "a" : 1.50, "b":"\\u00e9" }'
        assert read(body=raw).body == raw
        given = read("c=3&a=9", raw)
        assert given.body == b'{"c":"3", "a" : 1.50, "b":"\\u00e9" }'
        assert given.values == {"a": 1.5, "b": "é", "c": "3"}, "a member of the body counts first"

    @pytest.mark.parametrize(
        ("query", "body", "content_type"),
        [
            ("access_token=k&appsecret_proof=p&x=1", b"", ""),
            ("", b"access_token=k&appsecret_proof=p&x=1", FORM),
            ("", b'{"access_token":"k","appsecret_time":1,"x":"1"}', "application/json"),
        ],
    )
    def test_a_credential_is_taken_out_wherever_it_stands(
        self, query: str, body: bytes, content_type: str
    ) -> None:
        given = read(query, body, content_type)
        assert (given.access_token, given.values, orjson.loads(given.body)) == ("k", {"x": "1"}, {"x": "1"})

    def test_a_credential_of_the_body_counts_before_one_of_the_query(self) -> None:
        assert read("access_token=query", b'{"access_token":"body"}').access_token == "body"

    def test_a_form_writes_objects_as_json_or_with_brackets(self) -> None:
        form = urlencode(
            {"text": '{"body":"Hi"}', "components[0][type]": "BODY", "websites[]": "https://e.x"}
        )
        assert read(body=form.encode(), content_type=FORM).values == {
            "text": {"body": "Hi"}, "components": [{"type": "BODY"}], "websites": ["https://e.x"],
        }  # fmt: skip
        assert read(body=b"text=%7Bno+json", content_type=FORM).values == {"text": "{no json"}
        assert read(body=b"flow_json=%7B%7D", content_type=FORM).values == {"flow_json": "{}"}

    @pytest.mark.parametrize("name", ["batch", "ids", "include_headers", "method"])
    def test_what_makes_a_request_into_others_is_refused_in_every_place_and_spelling(self, name: str) -> None:
        spellings = [name, f"{name}[]", f"{name}[0][x]", f" {name}", name.replace("_", ".")]
        for spelled in spellings:
            query = urlencode({spelled: "get"})
            for given in ((query, b"", ""), ("", query.encode(), FORM)):
                with pytest.raises(InvalidRequest):
                    read(*given)
        with pytest.raises(InvalidRequest):
            read(body=orjson.dumps({name: "get"}))

    @pytest.mark.parametrize(
        "fields",
        [
            "owner_business_info{owned_apps}",
            '["id","owner_business_info{owned_apps}"]',
            '["owner_\\u0062usiness_info{owned_apps}"]',
            "id,assigned_users.limit(9){name}",
            '{"a":1}',
        ],
    )
    def test_fields_that_lead_elsewhere_are_refused_in_every_place(self, fields: str) -> None:
        query = urlencode({"fields": fields})
        for given in (
            (query, b"", ""),
            ("", query.encode(), FORM),
            ("", orjson.dumps({"fields": fields}), ""),
        ):
            with pytest.raises(InvalidRequest):
                read(*given)
        with pytest.raises(InvalidRequest):
            read(body=orjson.dumps({"fields": ["owner_business_info{owned_apps}"]}))

    @pytest.mark.parametrize(
        ("query", "body", "content_type"),
        [
            ("&".join(f"a{place}=1" for place in range(20_001)), b"", ""),
            ("a" + "[b]" * 17 + "=1", b"", ""),
            ("", b"{", "application/json"),
            ("", b"[]", "application/json"),
            ("", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "application/json"),
        ],
    )
    def test_what_cannot_be_read_is_refused(self, query: str, body: bytes, content_type: str) -> None:
        with pytest.raises(InvalidRequest):
            read(query, body, content_type)

    def test_json_in_a_text_that_is_too_deep_stays_a_text(self) -> None:
        deep = "[" * 300 + "]" * 300
        assert read(body=orjson.dumps({"components": deep})).values == {"components": deep}
        assert read(body=urlencode({"components": deep}).encode(), content_type=FORM).values == {
            "components": deep
        }

    def test_a_message_is_the_call_of_v1_with_the_callers_bytes(self) -> None:
        call = parameters.message_call("123", "messages", read(body=b'{"to": "1","text":{"body":"x"}}'))
        assert call.path == "/v1/messages"
        assert call.body == b'{"from":"123","type":"text","to": "1","text":{"body":"x"}}'
        assert call.members == orjson.loads(call.body)
        mark = parameters.message_call("123", "messages", read("status=read&message_id=wamid.1"))
        assert (mark.path, mark.members) == ("/v1/messages/read", {"message_id": "wamid.1", "from": "123"})
        foreign = parameters.message_call(
            "123", "marketing_messages", read("from=9", b'{"from":"8","type":"t"}')
        )
        assert (foreign.path, foreign.body) == ("/marketing_messages", b'{"from":"123","type":"t"}')


class TestParametersInTheQuery:
    @pytest.mark.django_db(transaction=True)
    def test_a_profile_a_template_and_a_message(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        def post(path: str, **query: str) -> Any:
            return api.client.post(f"/v25.0/{path}?{urlencode(query)}", headers=api.headers)

        phone = number.phone_number_id
        profile = post(f"{phone}/whatsapp_business_profile", messaging_product="whatsapp", about="Till six")
        assert profile.json() == {"success": True}
        assert api.get(f"/v25.0/{phone}/whatsapp_business_profile?fields=about").json()["data"][0][
            "about"
        ] == ("Till six")
        components = orjson.dumps([{"type": "BODY", "text": "Hello there."}]).decode()
        template = post(
            f"{account.waba_id}/message_templates",
            name="asked",
            language="en_US",
            category="UTILITY",
            components=components,
        )
        assert template.status_code == 200, template.content
        assert api.get(f"/v25.0/{template.json()['id']}").json()["name"] == "asked"
        text = {"messaging_product": "whatsapp", "to": CUSTOMER, "text": '{"body":"Hello"}'}
        assert post(f"{phone}/messages", **text).status_code == 200
        assert sent_bodies(simulator, number) == [{**text, "text": {"body": "Hello"}, "type": "text"}]

    def test_a_callback_in_the_query_is_the_gateways_as_in_a_body(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, receiver: Receiver
    ) -> None:
        override = {"override_callback_uri": receiver.url, "verify_token": "t"}
        configuration = urlencode({"webhook_configuration": orjson.dumps(override).decode()})
        answer = api.client.post(f"/v25.0/{number.phone_number_id}?{configuration}", headers=api.headers)
        assert answer.json()["success"] is True, answer.content
        assert Endpoint.objects.get(phone_number_ids=[number.phone_number_id]).url == receiver.url
        path = f"/v25.0/{account.waba_id}/subscribed_apps?{urlencode(override)}"
        assert "webhook" in api.client.post(path, headers=api.headers).json()
        beside = api.post(
            f"/v25.0/{number.phone_number_id}", {"webhook_configuration": override, "pin": "123456"}
        )
        assert "on its own" in error_of(beside, 400, 100)["message"]
        past = api.post(f"/v25.0/{number.phone_number_id}?webhook_url=https://shop.example/a")
        assert "webhook_configuration" in error_of(past, 400, 100)["message"]


class TestPins:
    """A number's PIN belongs to its owner. The gateway stores the PIN that Meta received, and generates none."""

    @pytest.mark.parametrize("way", ["query", "form", "json", "number"])
    def test_the_callers_pin_registers_and_is_kept(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator, way: str
    ) -> None:
        path, asked = (
            f"/v25.0/{number.phone_number_id}/register",
            {"messaging_product": "whatsapp", "pin": "123456"},
        )
        if way == "query":
            answer = api.client.post(f"{path}?{urlencode(asked)}", headers=api.headers)
        elif way == "form":
            answer = api.client.post(path, urlencode(asked), content_type=FORM, headers=api.headers)
        else:
            answer = api.post(path, {**asked, "pin": 123456 if way == "number" else "123456"})
        assert answer.json() == {"success": True}, answer.content
        number.refresh_from_db()
        assert (number.pin, number.registered) == ("123456", True)
        [call] = upstream_calls(simulator, number.phone_number_id)
        assert str(orjson.loads(call["body"])["pin"]) == "123456"
        assert AuditEntry.objects.filter(action="number.register").count() == 1

    def test_without_a_pin_the_upstream_refuses_and_none_is_invented(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        path = f"/v25.0/{number.phone_number_id}/register"
        error = error_of(api.post(path, {"messaging_product": "whatsapp"}), 400, 100)
        assert "pin" in error["message"]
        error_of(api.client.post(path, headers=api.headers), 400, 100)
        number.refresh_from_db()
        assert number.pin is None
        assert all(
            b"pin" not in row["body"].encode() for row in upstream_calls(simulator, number.phone_number_id)
        )

    def test_every_parameter_of_a_registration_goes_up(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        body = {"messaging_product": "whatsapp", "pin": "123456", "data_localization_region": "IN"}
        assert api.post(f"/v25.0/{number.phone_number_id}/register", body).json() == {"success": True}
        assert orjson.loads(upstream_calls(simulator, number.phone_number_id)[-1]["body"]) == body

    def test_a_number_of_the_app_is_never_registered_or_deregistered(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        PhoneNumber.objects.update(coexistence=True)
        for edge in ("register", "deregister"):
            answer = api.post(f"/v25.0/{number.phone_number_id}/{edge}", {"pin": "123456"})
            assert error_of(answer, 400, 100)["error_data"]["gateway_code"] == "conflict"
        assert upstream_calls(simulator, number.phone_number_id) == []


class TestEveryWay:
    @pytest.mark.parametrize("way", ["query", "form", "json"])
    def test_what_leads_away_from_the_node_never_goes_up(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, simulator: RunningSimulator, way: str
    ) -> None:
        away = [
            {"batch": "[]"}, {"ids": "1,2"}, {"method": "delete"},
            {"fields": "owner_business_info{owned_whatsapp_business_accounts}"},
        ]  # fmt: skip
        for asked in away:
            for path in (f"/v25.0/{account.waba_id}", f"/v25.0/{number.phone_number_id}/settings"):
                if way == "query":
                    answer = api.client.post(f"{path}?{urlencode(asked)}", headers=api.headers)
                elif way == "form":
                    answer = api.client.post(path, urlencode(asked), content_type=FORM, headers=api.headers)
                else:
                    answer = api.post(path, asked)
                error_of(answer, 400, 100)
        assert upstream_calls(simulator, account.waba_id) == []
        assert upstream_calls(simulator, number.phone_number_id) == []

    @pytest.mark.django_db(transaction=True)
    def test_a_form_with_json_in_it_as_metas_own_sdk_sends(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        form = {"messaging_product": "whatsapp", "to": CUSTOMER, "type": "text", "text": '{"body":"Hello"}'}
        answer = api.client.post(
            f"/v25.0/{number.phone_number_id}/messages",
            urlencode(form),
            content_type=FORM,
            headers=api.headers,
        )
        assert answer.status_code == 200, answer.content
        assert sent_bodies(simulator, number) == [{**form, "text": {"body": "Hello"}}]
        profile = {"messaging_product": "whatsapp", "websites": '["https://shop.example/"]'}
        path = f"/v25.0/{number.phone_number_id}/whatsapp_business_profile"
        answer = api.client.post(path, urlencode(profile), content_type=FORM, headers=api.headers)
        assert answer.json() == {"success": True}
        assert api.get(f"{path}?fields=websites").json()["data"][0]["websites"] == ["https://shop.example/"]

    @pytest.mark.parametrize("way", ["form", "json", "multipart"])
    def test_a_key_in_the_body_is_taken_and_goes_nowhere(
        self, key: api_keys.NewKey, number: PhoneNumber, simulator: RunningSimulator, way: str
    ) -> None:
        anonymous, path = Api(None), f"/v25.0/{number.phone_number_id}/whatsapp_business_profile"
        asked = {"messaging_product": "whatsapp", "about": "Till six", "access_token": key.key}
        if way == "form":
            answer = anonymous.client.post(path, urlencode(asked), content_type=FORM)
        elif way == "json":
            answer = anonymous.post(path, asked)
        else:
            answer = anonymous.client.post(path, asked)
        assert answer.json() == {"success": True}, answer.content
        [call] = upstream_calls(simulator, number.phone_number_id)
        assert orjson.loads(call["body"]) == {"messaging_product": "whatsapp", "about": "Till six"}
        error_of(anonymous.post(path, {**asked, "access_token": "EAAnothing"}), 401, 190)
        error_of(anonymous.post(path, {**asked, "about": "x" * 70_000}), 401, 190)

    def test_the_body_of_a_delete_goes_up(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        body = {"messaging_product": "whatsapp", "block_users": [{"user": CUSTOMER}]}
        path = f"/v25.0/{number.phone_number_id}/block_users"
        api.client.delete(path, orjson.dumps(body), content_type="application/json", headers=api.headers)
        [call] = upstream_calls(simulator, number.phone_number_id)
        assert (call["method"], orjson.loads(call["body"])) == ("DELETE", body)

    def test_a_delete_may_come_as_a_form_with_the_key_in_it(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        """Meta's Java SDK sends such requests."""
        key = api.headers["Authorization"].partition(" ")[2]
        users = orjson.dumps([{"user": CUSTOMER}]).decode()
        fields = {"access_token": key, "messaging_product": "whatsapp", "block_users": users}
        body = encode_multipart(BOUNDARY, fields)
        path = f"/v25.0/{number.phone_number_id}/block_users"
        assert api.client.generic("DELETE", path, body, MULTIPART_CONTENT).status_code == 200
        [call] = upstream_calls(simulator, number.phone_number_id)
        asked = {"messaging_product": "whatsapp", "block_users": [{"user": CUSTOMER}]}
        assert (call["method"], orjson.loads(call["body"])) == ("DELETE", asked)
        assert key not in str(call)

    def test_parameters_in_the_body_of_a_get_count(self, api: Api, number: PhoneNumber) -> None:
        answer = api.client.generic(
            "GET", f"/v25.0/{number.phone_number_id}", "fields=id", FORM, headers=api.headers
        )
        assert answer.json() == {"id": number.phone_number_id}

    def test_head_of_a_node(self, api: Api, number: PhoneNumber) -> None:
        answer = api.client.head(f"/v25.0/{number.phone_number_id}", headers=api.headers)
        assert (answer.status_code, answer.content) == (200, b"")

    def test_the_bytes_of_a_resumable_upload_may_be_called_json(self, api: Api, number: PhoneNumber) -> None:
        session = api.post("/v25.0/123456789/uploads?file_length=3&file_type=image/jpeg").json()["id"]
        answer = api.client.post(
            f"/v25.0/{session}", b"\xff\xd8\xff", content_type="application/json", headers=api.headers
        )
        assert answer.json()["h"].startswith("4::"), answer.content

    @pytest.mark.django_db(transaction=True)
    def test_a_recipient_may_be_a_number_in_json(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        body = {**TEXT, "to": int(CUSTOMER)}
        assert api.post(f"/v25.0/{number.phone_number_id}/messages", body).status_code == 200
        assert api.post("/v1/messages", {**body, "from": number.phone_number_id}).status_code == 200
        assert sent_bodies(simulator, number) == [body, body]


class TestFiles:
    @pytest.mark.parametrize("edge", ["/register", "", "/settings"])
    def test_a_file_opens_no_way_past_the_rules_of_a_number(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator, edge: str
    ) -> None:
        form = {"pin": "123456", "file": SimpleUploadedFile("a.jpg", b"x", "image/jpeg")}
        answer = api.client.post(f"/v25.0/{number.phone_number_id}{edge}", form, headers=api.headers)
        assert "no file" in error_of(answer, 400, 100)["message"]
        assert upstream_calls(simulator, number.phone_number_id) == []

    def test_a_groups_picture_goes_up_in_its_own_form(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, graph: ScriptedGraph
    ) -> None:
        group = "Y2FwaV9ncm91cDoxOTUwNTU1MDA3OToxMjAzNjM"
        listed = {"data": {"groups": [{"id": group, "subject": "Friends"}]}}
        graph.answers("GET", f"/{number.phone_number_id}/groups", listed)
        graph.answers("POST", f"/{group}", {"success": True})
        assert api.get(f"/v25.0/{number.phone_number_id}/groups").status_code == 200
        picture = SimpleUploadedFile("face.jpg", b"\xff\xd8picture" * 500_000, "image/jpeg")
        form = {"messaging_product": "whatsapp", "subject": "We", "profile_picture_file": picture}
        assert api.client.post(f"/v25.0/{group}", form, headers=api.headers).json() == {"success": True}
        body = graph.received[-1].body
        assert b'name="profile_picture_file"; filename="face.jpg"' in body
        assert b"\xff\xd8picture" * 500_000 in body
        assert b'name="subject"\r\n\r\nWe' in body


class TestNodes:
    """Ids of nodes that are neither numbers nor accounts nor templates."""

    @pytest.fixture
    def group(self) -> str:
        """A group's id in Meta's form."""
        return base64.urlsafe_b64encode(
            f"capi_group:19505550079:{secrets.randbelow(10**18)}".encode()
        ).decode()

    def test_paths_of_any_depth_below_an_own_id_go_up(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        path = f"/v25.0/{number.phone_number_id}/message_qrdls/ABCDEF123"
        for method in ("GET", "POST", "DELETE"):
            api.request(method, path, {"prefilled_message": "Hi"} if method == "POST" else None)
        calls = upstream_calls(simulator, number.phone_number_id)
        assert [(row["method"], row["path"]) for row in calls] == [
            (method, path) for method in ("GET", "POST", "DELETE")
        ]

    @pytest.mark.parametrize(
        "edge",
        [
            "assigned_users",
            "x/assigned_users",
            "owned_pages",
            "x/marketing_messages",
            "x/messages",
            "x/messages_encrypted",
            "x/media",
            "owner_business/owned_apps",
        ],
    )
    def test_what_is_not_passed_on_is_not_at_any_depth(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, simulator: RunningSimulator, edge: str
    ) -> None:
        error_of(api.get(f"/v25.0/{account.waba_id}/{edge}"), 403, 10)
        error_of(api.get(f"/v25.0/{account.waba_id}/../1234567"), 400, 2500)
        error_of(api.get(f"/v25.0/{account.waba_id}/{edge.title()}"), 400, 2500)
        error_of(api.get(f"/v25.0/{account.waba_id}/x/Assigned_Users"), 403, 10)
        assert upstream_calls(simulator, account.waba_id) == []

    @pytest.mark.parametrize(
        "edge",
        [
            "whatsapp_business_account/subscribed_apps",
            "username/Whatsapp_Business_Account/subscribed_apps",
            "whatsapp_business_account/phone_numbers/1234567/deregister",
            "phone_numbers/1234567/register",
        ],
    )
    def test_a_change_through_another_object_is_not_passed_on(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator, edge: str
    ) -> None:
        for method in ("POST", "DELETE"):
            error_of(api.request(method, f"/v25.0/{number.phone_number_id}/{edge}"), 403, 10)
        assert upstream_calls(simulator, number.phone_number_id) == []

    def test_an_id_that_nothing_named_costs_no_call(
        self, api: Api, number: PhoneNumber, simulator: RunningSimulator, group: str
    ) -> None:
        for method in ("GET", "POST", "DELETE"):
            for path in ("", "/assets", "/participants"):
                for node in ("999000999000999", group):
                    error_of(api.request(method, f"/v25.0/{node}{path}"), 400, 100, 33)
        assert upstream_calls(simulator, "999000999000999") == []
        assert upstream_calls(simulator, group) == []

    @pytest.mark.parametrize(
        "field",
        [
            "group_lifecycle_update",
            "group_participants_update",
            "group_settings_update",
            "group_status_update",
            "messages",
        ],
    )
    def test_a_group_is_known_from_its_notification_and_to_its_business_alone(
        self,
        api: Api,
        other_api: Api,
        other_tenant: Tenant,
        account: SimulatedAccount,
        number: PhoneNumber,
        simulator: RunningSimulator,
        group: str,
        field: str,
    ) -> None:
        connected_number(other_tenant, simulator.account())
        named: dict[str, Any] = {"groups": [{"group_id": group, "type": "group_create", "timestamp": "1"}]}
        if field == "messages":
            text = {
                "from": CUSTOMER,
                "id": "wamid.G",
                "timestamp": "1",
                "type": "text",
                "text": {"body": "Hi"},
            }
            named = {"messages": [{**text, "group_id": group}]}
        metadata = {"display_phone_number": number.digits, "phone_number_id": number.phone_number_id}
        value = {"messaging_product": "whatsapp", "metadata": metadata, **named}
        body = incoming.notification((account.waba_id, [{"field": field, "value": value}]))
        accept(body, environments=["live"])
        edges = [("GET", ""), ("DELETE", ""), ("GET", "/invite_link"), ("DELETE", "/participants")]
        for method, edge in edges:
            asked = {"participants": [{"user": CUSTOMER}]} if edge == "/participants" else None
            api.request(method, f"/v25.0/{group}{edge}", asked)
            api.request(method, f"/{group}{edge}", asked)
        calls = upstream_calls(simulator, group)
        assert [(row["method"], row["path"].removeprefix(f"/v25.0/{group}")) for row in calls] == [
            call for call in edges for _ in range(2)
        ]
        assert orjson.loads(calls[-1]["body"]) == asked
        for method, edge in edges:
            error_of(other_api.request(method, f"/v25.0/{group}{edge}"), 400, 100, 33)
        assert len(upstream_calls(simulator, group)) == len(calls)

    def test_a_flow_is_known_from_a_list_that_names_it(
        self,
        api: Api,
        tenant: Tenant,
        account: SimulatedAccount,
        number: PhoneNumber,
        simulator: RunningSimulator,
    ) -> None:
        made = requests.post(
            f"{simulator.url}/v25.0/{account.waba_id}/flows",
            json={"name": "old", "categories": ["OTHER"]},
            headers={"Authorization": f"Bearer {account.access_token}"},
            timeout=30,
        ).json()
        error_of(api.get(f"/v25.0/{made['id']}?fields=id,name"), 400, 100, 33)
        assert api.get(f"/v25.0/{account.waba_id}/flows").status_code == 200
        assert api.get(f"/v25.0/{made['id']}?fields=id,name").json()["name"] == "old"

    def test_a_sign_up_link_is_addressed_where_meta_has_it_by_its_own_business_alone(
        self,
        api: Api,
        other_api: Api,
        other_tenant: Tenant,
        account: SimulatedAccount,
        number: PhoneNumber,
        simulator: RunningSimulator,
    ) -> None:
        connected_number(other_tenant, simulator.account())
        texts = {"signup_message": "Offers", "confirmation_message": "Welcome"}
        policy = {"privacy_policy_url": "https://shop.example/p", "policy": {"accepted": True}}
        made = api.post(f"/v25.0/{account.waba_id}/signups", {**texts, **policy}).json()["id"]
        for version in ("v25.0/", ""):
            shown = api.get(f"/{version}signups/{made}").json()
            assert (shown["id"], shown["status"]) == (made, "ACTIVE")
            error_of(other_api.get(f"/{version}signups/{made}"), 400, 100, 33)
        assert api.post(f"/v25.0/signups/{made}", {"status": "DISABLED"}).json() == {"success": True}
        assert api.get(f"/v25.0/signups/{made}").json()["status"] == "DISABLED"
        flow = api.post(f"/v25.0/{account.waba_id}/flows", {"name": "mine"}).json()["id"]
        for foreign in (flow, number.phone_number_id, "999000999000999"):
            error_of(api.get(f"/v25.0/signups/{foreign}"), 400, 100, 33)
        error_of(api.get("/v25.0/signups"), 400, 2500)
        called = {row["path"] for row in upstream_calls(simulator, "signups")}
        assert called == {f"/v25.0/signups/{made}"}

    def test_what_another_environment_learned_is_unknown(
        self,
        api: Api,
        tenant: Tenant,
        account: SimulatedAccount,
        number: PhoneNumber,
        simulator: RunningSimulator,
    ) -> None:
        flow = api.post(f"/v25.0/{account.waba_id}/flows", {"name": "live"}).json()["id"]
        test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
        calls = len(upstream_calls(simulator, flow))
        error_of(test_api.get(f"/v25.0/{flow}?fields=id,name"), 400, 100, 33)
        # Now both environments have the same account. Only the record of the flow tells them apart.
        BusinessAccount.objects.update(environment="test")
        error_of(test_api.get(f"/v25.0/{flow}?fields=id,name"), 400, 100, 33)
        assert len(upstream_calls(simulator, flow)) == calls

    def test_what_another_business_learned_is_unknown_even_with_a_token_that_opens_it(
        self,
        api: Api,
        other_api: Api,
        other_tenant: Tenant,
        account: SimulatedAccount,
        number: PhoneNumber,
        simulator: RunningSimulator,
    ) -> None:
        flow = api.post(f"/v25.0/{account.waba_id}/flows", {"name": "mine"}).json()["id"]
        connected_number(other_tenant, simulator.account())
        theirs = BusinessAccount.objects.get(tenant=other_tenant)
        theirs.access_token = BusinessAccount.objects.get(waba_id=account.waba_id).access_token
        theirs.save()
        for method, edge in (
            ("GET", ""),
            ("POST", ""),
            ("DELETE", ""),
            ("POST", "/publish"),
            ("GET", "/assets"),
        ):
            error_of(other_api.request(method, f"/v25.0/{flow}{edge}"), 400, 100, 33)
        # The account now belongs to the other tenant. The record of the flow still belongs to the previous tenant.
        BusinessAccount.objects.filter(waba_id=account.waba_id).update(tenant=other_tenant)
        error_of(api.get(f"/v25.0/{flow}"), 400, 100, 33)
        error_of(other_api.get(f"/v25.0/{flow}"), 400, 100, 33)
        assert upstream_calls(simulator, flow) == []

    def test_the_nodes_of_an_expanded_field_are_known(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber, graph: ScriptedGraph
    ) -> None:
        catalogs = {"data": [{"id": "700700700", "products": {"data": [{"id": "800800800"}]}}]}
        answer = {
            "id": account.waba_id,
            "product_catalogs": catalogs,
            "unknown": {"data": [{"id": "900900900"}]},
        }
        graph.answers("GET", f"/{account.waba_id}", answer)
        graph.always_answers({"data": []})
        assert api.get(f"/v25.0/{account.waba_id}?fields=product_catalogs").json() == answer
        assert api.get("/v25.0/700700700/products").status_code == 200
        for node_id in ("800800800", "900900900"):
            error_of(api.get(f"/v25.0/{node_id}"), 400, 100, 33)

    def test_a_learned_node_teaches_nothing(
        self, api: Api, tenant: Tenant, account: SimulatedAccount, number: PhoneNumber, graph: ScriptedGraph
    ) -> None:
        graph.answers("GET", f"/{account.waba_id}/product_catalogs", b'{"data":[{"id":"600600600"}]}')
        graph.answers("GET", "/600600600/flows", b'{"data":[{"id":"700700700"}]}')
        assert api.get(f"/v25.0/{account.waba_id}/product_catalogs").status_code == 200
        assert api.get("/v25.0/600600600/flows").status_code == 200
        error_of(api.get("/v25.0/700700700"), 400, 100, 33)
        assert len(graph.received) == 2

    def test_a_picture_sent_from_the_app_is_known_by_its_echo(
        self, api: Api, account: SimulatedAccount, number: PhoneNumber
    ) -> None:
        echo = {
            "from": number.digits, "to": CUSTOMER, "id": "wamid.E", "timestamp": "1", "type": "image",
            "image": {"id": "518262192608783", "mime_type": "image/jpeg"},
        }  # fmt: skip
        metadata = {"display_phone_number": number.digits, "phone_number_id": number.phone_number_id}
        value = {"messaging_product": "whatsapp", "metadata": metadata, "message_echoes": [echo]}
        change = {"field": "smb_message_echoes", "value": value}
        accept(incoming.notification((account.waba_id, [change])), environments=["live"])
        assert KnownMedia.objects.get().phone_number_id == number.phone_number_id


PAYMENTS = {"configuration_name": "pay", "purpose_code": "00", "merchant_category_code": "0000"}
RANGE = "start=1793400000&end=1793500000&granularity=DAILY"
LESS_KNOWN: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("POST", "{waba}?is_enabled_for_insights=true", None, '"success":true'),
    ("POST", "{waba}", {"name": "Asha Traders", "timezone_id": 71}, '"success":true'),
    ("GET", "{waba}?fields=name,timezone_id", None, '"timezone_id":"71"'),
    ("GET", "{waba}?fields=message_templates.limit(1){name},flows,solutions", None, '"flows":{"data":[]}'),
    ("GET", "{phone}?fields=host_platform,username,message_qrdls{code}", None, '"host_platform":"CLOUD_API"'),
    ("POST", "{waba}/payment_configuration", PAYMENTS | {"provider_name": "razorpay"}, '"oauth_url":"https'),
    ("POST", "{waba}/payment_configuration/pay", {"data_endpoint_url": "https://e.x"}, '"success":true'),
    ("GET", "{waba}/payment_configuration/pay", None, '"data_endpoint_url":"https://e.x"'),
    ("GET", "{waba}/payment_configurations", None, '"status":"Needs_Connecting"'),
    ("GET", "{phone}/payments/pay/order-1", None, '"reference_id":"order-1","status":"pending"'),
    (
        "POST",
        "{phone}/payments_refund",
        {
            "reference_id": "order-1",
            "payment_config_id": "pay",
            "amount": {"currency": "INR", "value": "100", "offset": "100"},
        },
        '"speed_processed":"normal"',
    ),
    ("DELETE", "{waba}/payment_configuration", {"configuration_name": "pay"}, '"success":true'),
    ("GET", "{phone}/payments/pay/order-1", None, '"error_subcode":33'),
    ("POST", "{waba}/template_groups", {"name": "Orders", "whatsapp_business_templates": ["1"]}, '"id":"3'),
    ("POST", "{id}", {"description": "All"}, '"success":true'),
    ("GET", "{id}?fields=name,description", None, '"description":"All"'),
    ("GET", f"{{waba}}/template_group_analytics?{RANGE}&template_group_ids=[{{id}}]", None, '"sent":0'),
    ("DELETE", "{id}", None, '"success":true'),
    ("GET", f"{{waba}}/group_analytics?{RANGE}&group_ids=[1]", None, '"group_id":"1"'),
    (
        "GET",
        "{waba}?fields=call_analytics.start(1793400000).end(1793500000).granularity(DAILY)",
        None,
        '"call_analytics":{"data":[{"data_points":[]}]}',
    ),
    (
        "GET",
        "{waba}/message_template_previews?category=AUTHENTICATION&languages=en_US,hi&code_expiration_minutes=9",
        None,
        "This code expires in 9 minutes.",
    ),
    ("POST", "{waba}/migrate_message_templates?source_waba_id={waba}", None, '"migrated_templates":[]'),
    ("POST", "{waba}/migrate_flows", {"source_waba_id": "{waba}", "source_flow_names": ["x"]}, '"4233041"'),
    ("POST", "{waba}/migrate_flows", {"source_waba_id": "123456789"}, "that the token opens"),
    ("GET", "{waba}/dataset", None, '"id":"4'),
    ("POST", "{waba}/set_solution_migration_intent", {"solution_id": "1"}, '"code":10'),
    (
        "POST",
        "{waba}/welcome_message_sequences",
        {"name": "a", "welcome_message_sequence": "{}"},
        "sequence_id",
    ),
    ("DELETE", "{waba}/welcome_message_sequences?sequence_id={sequence_id}", None, '"success":true'),
    ("DELETE", "{phone}/requested_username", None, '"success":false'),
    ("POST", "{phone}/messages", {"messaging_product": "whatsapp", "to": CUSTOMER, **TEXT}, "wamid."),
    ("GET", "{phone}/message_history", None, '"delivery_status":'),
    ("GET", "{data[0].id}/events", None, '"delivery_status":'),
]
"""Method, path, body, and a text in the response. `{name}` is the value of a member in an earlier response."""


@pytest.mark.django_db(transaction=True)
def test_less_known_calls_of_the_documentation_work_in_the_sandbox(
    api: Api, account: SimulatedAccount, number: PhoneNumber
) -> None:
    known: dict[str, str] = {"waba": account.waba_id, "phone": number.phone_number_id}
    for method, path, body, holds in LESS_KNOWN:
        for name, value in known.items():
            path = path.replace(f"{{{name}}}", value)
        given = orjson.loads(orjson.dumps(body).replace(b"{waba}", account.waba_id.encode()))
        answer = api.request(method, f"/v25.0/{path}", given)
        assert holds in answer.content.decode(), (method, path, answer.content)
        parsed = answer.json()
        known |= {name: parsed[name] for name in ("id", "sequence_id") if name in parsed}
        if isinstance(parsed.get("data"), list) and parsed["data"] and "id" in parsed["data"][0]:
            known["data[0].id"] = parsed["data"][0]["id"]


@pytest.mark.parametrize("raw", [b"{}", b"{ }", b' { "b" : [2] } '])
def test_members_of_the_query_are_inserted_into_the_body(raw: bytes) -> None:
    added = {"a": "x"}
    assert orjson.loads(parameters.with_members(added, raw)) == {**added, **orjson.loads(raw)}
    assert parameters.with_members({}, raw) == raw
