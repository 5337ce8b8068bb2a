"""Every kind of call at the Cloud API's paths and at `/mcp`, with every credential.

At these paths, one view serves several operations. The required scope depends on the object of a call, so `CALLS` names
the scope of each call.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

from gateway import ids as public_ids
from gateway.clock import now
from gateway.roles import Area, KeyScope
from messaging.cloud_api.errors import CODES
from messaging.message_templates import mirror
from messaging.models import KnownMedia, KnownNode
from phone_numbers.models import BusinessAccount, PhoneNumber
from tests.api_contract.authorisation import Kind, World
from tests.api_contract.credentials import (
    ENVIRONMENTS,
    FORBIDDEN,
    NOT_FOUND,
    Credential,
    Refusal,
    declared_by,
    lacks,
    refusal,
    turns,
)
from tests.api_contract.test_authorisation import made_credentials
from tests.fixtures import assert_error
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = {"messaging_product": "whatsapp", "to": "919812345678", "type": "text", "text": {"body": "Hello"}}
CALLBACK = {"override_callback_uri": "https://hooks.example/in", "verify_token": "t"}


@dataclass(frozen=True)
class Call:
    """A call, and what its callers need to be admitted."""

    method: str
    path: str
    scope: KeyScope | None
    body: Mapping[str, Any] = field(default_factory=dict)
    also: KeyScope | None = None
    """A second required scope, which is checked after the object was found."""
    foreign: Refusal = NOT_FOUND
    """The rejection for an object that the caller does not find."""
    is_node: bool = True
    """Whether the scope depends on the object. An unknown object could be media, which needs the scope of messages."""
    is_known_to_meta: bool = False
    """Whether only Meta knows the object, so that a caller with any number may request it."""
    keeps_to_numbers: bool = True
    area: Area = Area.INTEGRATION
    kind: Kind = "tenant"
    takes_connected_apps: bool = False
    open_to_any_status: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} {self.path} {self.also}"

    @property
    def declared(self) -> tuple[Hashable, ...]:
        """Everything on which the answers to callers depend."""
        return (
            *declared_by(self),
            self.also,
            self.foreign,
            self.is_node,
            self.is_known_to_meta,
            "{" in self.path,
        )


_FROM: Refusal = (400, "invalid_request")
_M, _N, _T, _W = KeyScope.MESSAGES, KeyScope.NUMBERS, KeyScope.TEMPLATES, KeyScope.WEBHOOKS
CALLS = [
    Call("POST", "{number}/messages", _M, TEXT, foreign=_FROM),
    Call("POST", "{number}/marketing_messages", _M, TEXT, foreign=_FROM),
    Call("POST", "{number}/media", _M, foreign=(415, "unsupported_media_type")),
    Call("GET", "{media}", _M),
    Call("DELETE", "{media}", _M),
    Call("GET", "{media}/content", _M, is_known_to_meta=True),
    Call("GET", "{number}", _N),
    Call("POST", "{number}/register", _N, {"pin": "123456"}),
    Call("POST", "{number}/deregister", _N, {"fields": "template"}),
    Call("GET", "{number}/whatsapp_business_profile", _N),
    Call("POST", "{number}", _N, {"webhook_configuration": CALLBACK}, also=_W),
    Call("GET", "{account}", _N),
    Call("GET", "{account}/phone_numbers", _N),
    Call("GET", "{account}?fields=message_templates", _T),
    Call("GET", '{account}?fields=["message_templates"]', _T),
    Call("GET", "{account}?fields=message_templates,phone_numbers", _T, also=_N),
    Call("GET", "{account}/subscribed_apps", _N, is_node=False, keeps_to_numbers=False),
    Call("POST", "{account}/subscribed_apps", _N, CALLBACK, also=_W, is_node=False, keeps_to_numbers=False),
    Call("DELETE", "{account}/subscribed_apps", _N, also=_W, is_node=False, keeps_to_numbers=False),
    Call("GET", "{account}/message_templates", _T),
    Call("POST", "{account}/message_templates", _T, {"name": "order", "language": "en"}),
    Call("GET", "{account}/flows", _T),
    Call("GET", "{template}", _T),
    Call("DELETE", "{flow}", _T),
    Call("GET", "{flow}/whatsapp_business_account/phone_numbers", _N),
    Call("GET", "{number}/whatsapp_business_account/flows", _T),
    Call("GET", "{group}", _N),
    Call("GET", "{catalog}", _N),
    Call("GET", "signups/{signup}", _N),
    Call("GET", "message_template_library", _T),
    Call("POST", "1234567/uploads", _T, {"file_length": 1, "file_type": "image/png"}),
    Call("GET", "upload:MTphdHRhY2htZW50", _T),
    Call("GET", "me", None),
    Call("GET", "debug_token", None),
]
TURNS = turns({call.name: call.declared for call in CALLS})


class Objects:
    """The objects of a tenant in one environment."""

    def __init__(self, world: World) -> None:
        self.world = world
        owned: dict[str, Any] = {"tenant": world.tenant, "environment": world.environment}
        self.account = BusinessAccount.objects.create(
            **owned, waba_id=_unique(), access_token="EAAx", subscribed=True
        )
        self.number = PhoneNumber.objects.create(
            **owned, account=self.account, phone_number_id=_unique(), connection_state="connected"
        )
        scope = {"tenant_id": world.tenant.id, "environment": world.environment}
        self.parts = {
            "account": self.account.waba_id,
            "number": self.number.phone_number_id,
            **{name: _unique() for name in ("media", "template", *_NODES)},
        }
        KnownMedia.objects.create(
            **scope, media_id=self.parts["media"], phone_number_id=self.number.phone_number_id
        )
        mirror.store_one(self.account, {"id": self.parts["template"], "name": "order"}, since=now())
        for kind in _NODES:
            KnownNode.objects.create(
                **scope, node_id=self.parts[kind], kind=kind, waba_id=self.account.waba_id, noted_at=now()
            )

    @property
    def is_live(self) -> bool:
        return self.world.environment == "live"

    def callback(self) -> None:
        """Create the callback unless it exists, because a call may have removed it."""
        Endpoint.objects.get_or_create(
            tenant=self.world.tenant,
            environment=self.world.environment,
            uid=f"cloud-api:{self.account.waba_id}",
            defaults={
                "url": "http://127.0.0.1:9/",
                "event_types": ["*"],
                "secret": "whsec_c2VjcmV0",
                "secret_prefix": "whsec_c2Vj",
            },
        )


_NODES = ("flow", "group", "catalog", "signup")


def _unique() -> str:
    return str(public_ids.uuid7().int)[-15:]


@pytest.fixture(autouse=True)
def _others_are_away(settings: Settings) -> None:
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = "http://127.0.0.1:9"


def expected(credential: Credential, call: Call, world: World) -> Refusal | None:
    """Return the rejection of a credential for an object of this world, or None if it is admitted."""
    finds = "{" not in call.path or credential.world == (world.tenant, world.environment)
    if not finds:
        needed = replace(call, scope=KeyScope.MESSAGES) if call.is_node else call
        return refusal(credential, needed) or call.foreign
    rejected = refusal(credential, call)
    if rejected is not None:
        return rejected
    if credential.is_limited and "{" in call.path:
        return call.foreign
    return FORBIDDEN if call.also is not None and lacks(credential, call.also) else None


def problem_with(credential: Credential, call: Call, objects: Objects) -> str | None:
    """Return what is wrong with the answer to a credential, or None."""
    wanted = expected(credential, call, objects.world)
    path = "/v25.0/" + call.path.format(**objects.parts)
    answer = credential.api.request(call.method, path, call.body if call.method == "POST" else None)
    error = (
        answer.json().get("error", {})
        if answer.get("Content-Type", "").startswith("application/json")
        else {}
    )
    code = error.get("error_data", {}).get("gateway_code")
    if wanted is None:
        is_right = code not in {
            "unauthorized",
            "forbidden",
            "not_found",
            "tenant_suspended",
            "tenant_not_approved",
        }
    else:
        meant = CODES[wanted[1]]
        is_right = (code, answer.status_code, error["code"]) == (wanted[1], meant.status, meant.code)
    if is_right and answer.status_code != 500:
        return None
    object_of = f"{objects.world.environment} object"
    return f"{call.method} {call.path}, {object_of}: {credential.name}: {answer.status_code} {code}, not {wanted}"


def test_each_credential_gets_what_the_calls_scope_says() -> None:
    credentials = made_credentials()
    wrong = []
    worlds = [replace(credentials.world, environment=environment) for environment in ENVIRONMENTS]
    for objects in [Objects(world) for world in worlds]:
        for call in CALLS:
            answer = partial(expected, call=call, world=objects.world)
            for credential in credentials.of_route(call, answer, TURNS[call.name]):
                is_own = credential.tenant == objects.world.tenant
                is_neighbour = credential.world[1] != objects.world.environment
                if (is_own and is_neighbour and call.is_known_to_meta) or not (is_own or objects.is_live):
                    continue
                if call.method == "DELETE" and call.also:
                    objects.callback()
                if (problem := problem_with(credential, call, objects)) is not None:
                    wrong.append(problem)
    assert not wrong, "\n".join(wrong)


@dataclass(frozen=True)
class Tools(Call):
    """A call of `/mcp` that lists the tools. Read-only roles are admitted, because some tools only read."""

    takes_connected_apps: bool = True


def test_each_credential_at_mcp_is_admitted_for_the_integration() -> None:
    credentials = made_credentials()
    call = Tools("GET", "/mcp", None)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    wrong = []
    for credential in credentials.all:
        wanted = refusal(credential, call)
        answer = credential.api.post("/mcp", message, Accept="application/json, text/event-stream")
        try:
            if wanted is None:
                assert answer.status_code == 200, answer.content
            else:
                assert_error(answer, *wanted)
        except AssertionError as error:
            wrong.append(f"{credential.name}, expected {wanted}: {error}")
    assert not wrong, "\n".join(wrong)
