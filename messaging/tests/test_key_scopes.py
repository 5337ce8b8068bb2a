"""Keys with limited scopes or numbers, for all requests of messages and events: `/v1`, Graph paths, `/mcp`."""

from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from gateway import ids
from messaging.models import Batch
from messaging.tests import incoming
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import text_change
from messaging.tests.test_agents import Agent
from messaging.tests.test_cloud_api import TEXT, error_of
from messaging.tests.test_cloud_api import sent_bodies as sent_by
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator, SimulatedAccount
from webhooks.models import Endpoint, Event, Message

pytestmark = pytest.mark.django_db(transaction=True)

TO = "+919812345678"
HELLO = {"to": TO, "type": "text", "text": {"body": "Hello"}}


@pytest.fixture
def foreign(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    """Another number of the same tenant, which the limited key does not include."""
    return connected_number(tenant, simulator.account())


@pytest.fixture
def limited(tenant: Tenant, number: PhoneNumber) -> Api:
    """A key that is limited to `number`."""
    return limited_to(tenant, number.phone_number_id)


def limited_to(tenant: Tenant, *numbers: str) -> Api:
    return Api(api_keys.create(name="n", environment="live", tenant=tenant, phone_number_ids=numbers).key)


def with_scopes(tenant: Tenant, *scopes: str, environment: str = "live") -> str:
    return api_keys.create(name="s", environment=environment, tenant=tenant, scopes=scopes).key


def events_of(tenant: Tenant, *numbers: str | None) -> list[str]:
    """For each number, create an event and a message in the log. Returns their public ids."""
    made = []
    for number in numbers:
        event = Event.objects.create(
            tenant_id=tenant.id,
            type="message.inbound",
            phone_number_id=number,
            dedupe_key=str(ids.uuid7()),
            payload_expires_on="2030-01-01",
        )
        Message.objects.create(
            tenant_id=tenant.id,
            environment="live",
            key=event.public_id,
            month=ids.month_of(event.id),
            id=event.id,
            direction="inbound",
            phone_number_id=number,
        )
        made.append(event.public_id)
    return made


class TestNumbers:
    def test_it_sends_from_its_own_alone(
        self, limited: Api, number: PhoneNumber, foreign: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        assert limited.post("/v1/messages", {"from": number.phone_number_id, **HELLO}).status_code == 200
        for name in (foreign.phone_number_id, f"+{foreign.digits}"):
            for headers in ({}, {"Idempotency-Key": "k"}):
                answer = limited.post("/v1/messages", {"from": name, **HELLO}, **headers)
                problem = assert_error(answer, 400, "invalid_request")["details"]["fields"]["from"][0]
                assert number.phone_number_id in problem
                assert foreign.phone_number_id not in problem, "it names the key's own numbers alone"
            read = {"from": name, "message_id": "wamid.1"}
            assert_error(limited.post("/v1/messages/read", read), 400, "invalid_request")
            batch = {"from": name, "messages": [HELLO]}
            assert_error(limited.post("/v1/messages/batch", batch), 400, "invalid_request")
        assert sent_by(simulator, foreign) == []
        assert not Batch.objects.exists()

    def test_it_sees_its_own_batches_alone(
        self, limited: Api, tenant: Tenant, number: PhoneNumber, foreign: PhoneNumber
    ) -> None:
        own, others = (
            Batch.objects.create(
                tenant=tenant,
                environment="live",
                phone_number_id=each.phone_number_id,
                client_ref=each.phone_number_id,
                total=1,
                rate_per_sec=80,
            )
            for each in (number, foreign)
        )
        assert [row["id"] for row in limited.get("/v1/messages/batch").json()["data"]] == [own.public_id]
        path = f"/v1/messages/batch/{others.public_id}"
        for answer in (limited.get(path), limited.get(f"{path}/items"), limited.post(f"{path}/cancel")):
            assert_error(answer, 404, "not_found")
        body = {"from": number.phone_number_id, "client_ref": others.client_ref, "messages": [HELLO]}
        assert_error(limited.post("/v1/messages/batch", body), 409, "conflict")

    def test_it_sees_its_own_numbers_messages_and_events_alone(
        self, limited: Api, tenant: Tenant, number: PhoneNumber, foreign: PhoneNumber
    ) -> None:
        own, others, nobodys = events_of(tenant, number.phone_number_id, foreign.phone_number_id, None)
        numbers = limited.get("/v1/numbers").json()["data"]
        assert [row["phone_number_id"] for row in numbers] == [number.phone_number_id]
        assert_error(limited.get(f"/v1/numbers/{foreign.phone_number_id}"), 404, "not_found")
        for kind in ("events", "messages"):
            assert [row["id"] for row in limited.get(f"/v1/{kind}").json()["data"]] == [own]
            assert limited.get(f"/v1/{kind}/{own}").status_code == 200
            for hidden in (others, nobodys):
                assert_error(limited.get(f"/v1/{kind}/{hidden}"), 404, "not_found")
            asked = f"/v1/{kind}?phone_number_id={foreign.phone_number_id}"
            assert_error(limited.get(asked), 400, "invalid_request")
            both = limited_to(tenant, number.phone_number_id, foreign.phone_number_id)
            assert_error(both.get(f"/v1/{kind}"), 400, "invalid_request")
            assert [row["id"] for row in both.get(asked).json()["data"]] == [others]

    def test_the_notification_of_its_event_has_no_change_of_another_number(
        self, api: Api, limited: Api, number: PhoneNumber, foreign: PhoneNumber
    ) -> None:
        changes = [
            text_change(foreign.phone_number_id, "wamid.F", body="secret"),
            text_change(number.phone_number_id, "wamid.O", body="own"),
        ]
        body = incoming.notification((number.account.waba_id, changes))
        assert incoming.post(body).status_code == 200
        (event_id,) = (row["id"] for row in limited.get("/v1/events").json()["data"])
        shown = limited.get(f"/v1/events/{event_id}")
        assert "secret" not in shown.content.decode()
        event = shown.json()["event"]
        (entry,) = event["raw"]["entry"]
        assert (entry["changes"], event["raw_path"]) == (
            [changes[1]],
            "entry[0].changes[0].value.messages[0]",
        )
        whole = api.get(f"/v1/events/{event_id}").json()["event"]
        assert (whole["raw"]["entry"][0]["changes"], whole["data"]) == (changes, event["data"])

    def test_it_neither_uploads_nor_fetches_media_of_others(
        self, api: Api, limited: Api, foreign: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        form = {"from": foreign.phone_number_id, "file": SimpleUploadedFile("a.png", b"png", "image/png")}
        media_id = api.client.post("/v1/media", form, headers=api.headers).json()["id"]
        for method in ("GET", "DELETE"):
            asked = limited.request(method, f"/v1/media/{media_id}?from={foreign.phone_number_id}")
            assert_error(asked, 400, "invalid_request")
            # Without `from`, the number recorded for the media file is used.
            assert_error(limited.request(method, f"/v1/media/{media_id}"), 404, "not_found")
        assert api.get(f"/v1/media/{media_id}?meta=true").status_code == 200

    def test_it_connects_and_releases_nothing_of_the_business(
        self, limited: Api, number: PhoneNumber
    ) -> None:
        for method, path in (
            ("POST", "/v1/connect-sessions"),
            ("POST", "/v1/numbers/connect"),
            ("DELETE", f"/v1/accounts/{number.account.waba_id}"),
            ("GET", "/v1/analytics"),
        ):
            error = assert_error(limited.request(method, path), 403, "forbidden")
            assert error["details"] == {"phone_number_ids": [number.phone_number_id]}

    def test_graph_paths_keep_to_its_own(
        self, limited: Api, number: PhoneNumber, foreign: PhoneNumber, simulator: RunningSimulator
    ) -> None:
        assert limited.post(f"/v25.0/{number.phone_number_id}/messages", TEXT).status_code == 200
        answer = limited.post(f"/v25.0/{foreign.phone_number_id}/messages", TEXT)
        assert answer.status_code == 400
        for node in (foreign.phone_number_id, number.account.waba_id):
            error_of(limited.get(f"/v25.0/{node}?fields=id"), 400, 100, 33)
        for path in ("whatsapp_business_account", "whatsapp_business_account/phone_numbers"):
            error_of(limited.get(f"/v25.0/{number.phone_number_id}/{path}"), 400, 100, 33)
        assert limited.get(f"/v25.0/{number.phone_number_id}?fields=id").status_code == 200
        assert limited.get(f"/v25.0/{number.account.waba_id}/subscribed_apps").status_code == 403
        assert sent_by(simulator, foreign) == []


class TestGraphPaths:
    def test_a_callback_is_removed_only_with_the_scope_of_webhooks(
        self, tenant: Tenant, number: PhoneNumber
    ) -> None:
        account, node = number.account.waba_id, number.phone_number_id
        for uid in (f"cloud-api:{account}", f"cloud-api:{node}"):
            Endpoint.objects.create(
                tenant=tenant,
                environment="live",
                format="meta",
                uid=uid,
                url="https://own.example/",
                event_types=["*"],
            )
        nothing = {"webhook_configuration": {"override_callback_uri": ""}}
        for scopes, status, left in ((["numbers"], 403, 2), (["numbers", "webhooks"], 200, 0)):
            api = Api(with_scopes(tenant, *scopes))
            for answer in (
                api.delete(f"/v25.0/{account}/subscribed_apps"),
                api.post(f"/v25.0/{node}", nothing),
            ):
                assert answer.status_code == status, answer.content
            assert Endpoint.objects.count() == left

    def test_a_flow_is_read_by_its_id_with_the_scope_of_templates(
        self, tenant: Tenant, number: PhoneNumber
    ) -> None:
        templates = Api(with_scopes(tenant, "templates"))
        body = {"name": "booking", "categories": ["APPOINTMENT_BOOKING"]}
        flow = templates.post(f"/v25.0/{number.account.waba_id}/flows", body).json()["id"]
        assert templates.get(f"/v25.0/{flow}").json()["id"] == flow
        error_of(Api(with_scopes(tenant, "messages", "numbers")).get(f"/v25.0/{flow}?fields=id"), 403, 10)

    @pytest.mark.parametrize("edge", ["/deregister", "/register", "?fields=template", ""])
    def test_no_parameter_of_a_command_changes_its_scope(
        self, tenant: Tenant, number: PhoneNumber, simulator: RunningSimulator, edge: str
    ) -> None:
        api = Api(with_scopes(tenant, "templates"))
        body = {"fields": "template", "pin": "123456"}
        error = error_of(api.post(f"/v25.0/{number.phone_number_id}{edge}", body), 403, 10)
        assert "numbers" in error["message"]
        assert simulator.control("GET", f"requests?node={number.phone_number_id}")["data"] == []

    @pytest.mark.parametrize(
        ("fields", "needed"),
        [
            ("message_templates", {"templates"}),
            ("message_templates.limit(5){name,status}, flows{id}", {"templates"}),
            ('["message_templates","flows"]', {"templates"}),
            ("message_templates,phone_numbers", {"numbers", "templates"}),
            ('["message_templates","phone_numbers"]', {"numbers", "templates"}),
            ("phone_numbers{message_template_count}", {"numbers", "templates"}),
            ('message_templates.name("("),phone_numbers.name(")")', {"numbers", "templates"}),
            ("message_templates.phone_numbers", {"numbers", "templates"}),
            ("Message_Templates", {"templates"}),
            ("id,name", {"numbers"}),
        ],
    )
    def test_a_read_needs_the_scope_of_each_field(
        self, tenant: Tenant, number: PhoneNumber, fields: str, needed: set[str]
    ) -> None:
        path = f"/v25.0/{number.account.waba_id}?{urlencode({'fields': fields})}"
        for scopes in ({"numbers"}, {"templates"}, {"numbers", "templates"}):
            is_refused = Api(with_scopes(tenant, *scopes)).get(path).status_code == 403
            assert is_refused == bool(needed - scopes), scopes


class TestAgents:
    def test_a_tool_that_the_key_does_not_open_is_refused(
        self, tenant: Tenant, simulator: RunningSimulator, account: SimulatedAccount
    ) -> None:
        number = connected_number(tenant, account, environment="test")
        agent = Agent(with_scopes(tenant, "events", "numbers", environment="test"))
        refused = agent.refused(
            "send_message", to=[TO], message={"type": "text", "text": {"body": "x"}}, idempotency_key="k"
        )
        assert (refused["code"], refused["details"]["scope"]) == ("forbidden", "messages")
        assert sent_by(simulator, number) == []
        agent.call("numbers_health")
