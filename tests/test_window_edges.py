"""The ends of time windows, with a clock that the tests set.

Each window is open a microsecond before its end and closed a microsecond after it. `includes_end` says whether it is
open at the end itself. The tests of billing cover its windows, which get the time as an argument.
`tests/test_pruning_edges.py` covers rows that are deleted by age.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import signing
from django.db import connection, transaction
from django.db.models import F

from gateway import clock as service_clock
from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest, NotFound
from gateway.clock import now
from gateway.database.statements import run
from messaging import idempotency
from messaging.batches import references, scheduled_messages
from messaging.flows import endpoints, exchange
from messaging.message_log import customers
from messaging.message_templates import parameters
from messaging.models import Batch, FlowEndpoint, IdempotencyRecord, MessageReference, TemplateMirror
from phone_numbers import app_data
from phone_numbers.connection import mails
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import AppData, BusinessAccount, ConnectSession, PhoneNumber
from tenants import device_login
from tenants.connected_apps import connections
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import ApiKey, Invitation, SignUp, Tenant, User
from tenants.signup import screening, sign_ups
from tenants.staff import support_view
from tenants.team import invitations
from tenants.tests.connected_apps import REDIRECT_URI, VERIFIER, client_of, code_of, member_of, tokens_of
from tests.fixtures import Api
from webhooks.endpoints import circuit_breaker
from webhooks.endpoints import notices as endpoint_notices
from webhooks.models import Endpoint, Event, Message

pytestmark = pytest.mark.django_db

START = service_clock.now().replace(microsecond=0)
MOMENT = timedelta(microseconds=1)
IsOpen = Callable[[], object]


class Clock:
    """The time that every module of the service reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moment = START
        for module in list(sys.modules.values()):
            if module is not service_clock and vars(module).get("now") is service_clock.now:
                monkeypatch.setattr(module, "now", lambda: self.moment)
        # Signed links read the time themselves.
        monkeypatch.setattr(signing, "time", SimpleNamespace(time=lambda: self.moment.timestamp()))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def opens(call: Callable[[], object], *refusals: type[Exception]) -> bool:
    """Return whether a call succeeds with a true result. Its changes are rolled back."""
    with suppress(*refusals), transaction.atomic():
        opened = bool(call())
        transaction.set_rollback(True)
        return opened
    return False


def owner(tenant: Tenant) -> User:
    return User.objects.create_user("owner@traders.example", "pw", tenant=tenant)


def number_of(tenant: Tenant) -> PhoneNumber:
    account = BusinessAccount.objects.create(tenant=tenant, environment="live", waba_id="2", access_token="E")
    return PhoneNumber.objects.create(tenant=tenant, account=account, environment="live", phone_number_id="1")


def customer_service(tenant: Tenant) -> IsOpen:
    number, scope = number_of(tenant), {"tenant_id": tenant.id, "environment": "live"}
    event = Event.objects.create(
        **scope, type="message.inbound", dedupe_key="k", payload_expires_on="2030-01-01"
    )
    Message.objects.create(
        **scope,
        key=event.public_id,
        month=ids.month_of(event.id),
        id=event.id,
        event_id=event.id,
        direction="inbound",
        phone_number_id=number.phone_number_id,
        wa_id="919812345678",
        sent_at=START,
    )
    named = {"phone_number_id": number.phone_number_id, "customer_id": "919812345678"}
    return lambda: customers.find(**scope, **named).window_open  # type: ignore[arg-type]


def console_token(tenant: Tenant) -> IsOpen:
    token = bearer_tokens.open_session(owner(tenant)).token
    return lambda: bearer_tokens.session_for(token) is not None


def invitation_link(tenant: Tenant) -> IsOpen:
    row = Invitation.objects.create(tenant=tenant, email="a@b.example", role="agent", created_at=START)
    token = invitations.link_for(row).rpartition("/")[2]
    return lambda: opens(lambda: invitations.find(token), invitations.InvitationLinkError)


def invitation_in_the_list(tenant: Tenant) -> IsOpen:
    row = Invitation(tenant=tenant, created_at=START)
    return lambda: not invitations.is_expired(row)


def sign_up_link(tenant: Tenant) -> IsOpen:
    row = SignUp.objects.create(email="a@b.example", created_at=START)
    token = sign_ups.link_for(row).rpartition("/")[2]
    return lambda: opens(lambda: sign_ups.find(token), sign_ups.ConfirmationLinkError)


def device_request(tenant: Tenant) -> IsOpen:
    started = device_login.start(client_name="laptop", ip=None)
    return lambda: opens(lambda: device_login.waiting(started.row.user_code), NotFound)


def device_code(tenant: Tenant) -> IsOpen:
    started = device_login.start(client_name="laptop", ip=None)
    return lambda: device_login.redeem(started.device_code).status != device_login.EXPIRED


def code_of_a_connected_app(tenant: Tenant) -> IsOpen:
    client = client_of()
    redeemed = {
        "client_id": str(client.id),
        "code": code_of(client, member_of(tenant)),
        "redirect_uri": REDIRECT_URI,
        "verifier": VERIFIER,
    }
    return lambda: opens(lambda: connections.redeem_code(**redeemed), connections.InvalidGrant)


def access_token(tenant: Tenant) -> IsOpen:
    token = tokens_of(member_of(tenant)).access
    return lambda: connections.caller_for(token) is not None


def connected_app(tenant: Tenant) -> IsOpen:
    client = client_of()
    token = tokens_of(member_of(tenant), client).refresh
    refreshed = {"client_id": str(client.id), "token": token}
    return lambda: opens(lambda: connections.refresh(**refreshed), connections.InvalidGrant)


def connect_session(tenant: Tenant) -> IsOpen:
    session = sessions.create(tenant_id=tenant.id, environment="live", return_url="https://a.example")
    # A session can be given up only while it is open.
    return lambda: opens(lambda: sessions.give_up(session, reason=None).status == "failed")


def room_of_a_connect_session(tenant: Tenant) -> IsOpen:
    scope = {"tenant_id": tenant.id, "environment": "live"}
    sessions.create(**scope, return_url="https://a.example")  # type: ignore[arg-type]
    return lambda: sessions.open_sessions(**scope).exists()  # type: ignore[arg-type]


def result_of_a_connect_session(tenant: Tenant) -> IsOpen:
    session = sessions.create(tenant_id=tenant.id, environment="live", return_url="https://a.example")
    ConnectSession.objects.update(finishing_until=START + sessions.FINISHING)
    return lambda: not opens(lambda: sessions.give_up(session, reason=None), Conflict)


def former_secret_of_flows(tenant: Tenant) -> IsOpen:
    number = number_of(tenant)
    FlowEndpoint.objects.create(
        number=number,
        url="https://example.com/flows",
        secret="whsec_c2VjcmV0",
        secret_prefix="whsec_c2Vj",
        key_uploaded_at=START,
    )
    row = endpoints.rotate_secret(number, actor=endpoints.Actor())
    opened: Any = SimpleNamespace(endpoint=row, content=b"{}")
    return lambda: len(exchange._headers(opened)["webhook-signature"].split()) == 2


def support(tenant: Tenant) -> IsOpen:
    staff = User.objects.create_superuser("staff@service.example", "pw")
    request: Any = SimpleNamespace(session={})
    support_view.begin(request, tenant=tenant, user=staff, reason="ticket 7")
    return lambda: support_view.current(request, staff) is not None


def mirror_of_templates(tenant: Tenant) -> IsOpen:
    account = number_of(tenant).account
    TemplateMirror.objects.update_or_create(
        account=account, defaults={"read_at": START, "next_sync_at": START + timedelta(days=1), "failures": 0}
    )
    return lambda: parameters._Mirrored(account.waba_id, set()).is_fresh()


def works(made: api_keys.NewKey) -> IsOpen:
    return lambda: Api(made.key).get("/v1/numbers").status_code == 200


def rotated_key(tenant: Tenant) -> IsOpen:
    old = api_keys.create(name="k", environment="live", tenant=tenant)
    api_keys.rotate(keys=ApiKey.objects.all(), key_id=old.row.id)
    return works(old)


def key_of_a_device(tenant: Tenant) -> IsOpen:
    started = device_login.start(client_name="laptop", ip=None)
    device_login.confirm(started.row.user_code, user=owner(tenant), tenant=tenant, environment="live")
    new = device_login.redeem(started.device_code).new
    assert new is not None
    return works(new)


def sign_ups_of_one_address(tenant: Tenant) -> IsOpen:
    for name in "ab":
        SignUp.objects.create(email=f"{name}@{name}.example", ip="192.0.2.7", created_at=START)
    row = SignUp(email="c@c.example", ip="192.0.2.7", tax_id="AAACI1681G", website="https://c.example")
    return lambda: any(found["code"] == "many_signups_same_ip" for found in screening.compute(row))


def requests_of_app_data(tenant: Tenant) -> IsOpen:
    number = number_of(tenant)
    number.coexistence = True
    number.save()
    app_data.begin(number)

    def is_requested() -> bool:
        AppData.objects.update(status="pending", next_attempt_at=now())
        app_data.request_due()
        return not AppData.objects.filter(status="expired").exists()

    return is_requested


def mailed_disconnection(tenant: Tenant) -> IsOpen:
    return lambda: not mails._is_due(START)


def attempts_counted_together(tenant: Tenant) -> IsOpen:
    failed = [circuit_breaker.AttemptResult(ok=False)]
    first = circuit_breaker.after(circuit_breaker.EndpointCounters(), failed, START)
    return lambda: circuit_breaker.after(first, failed, now()).window_attempts == 2


def endpoint_that_may_recover(tenant: Tenant) -> IsOpen:
    counters = circuit_breaker.EndpointCounters(consecutive_failures=100, failing_since=START)
    return lambda: not counters.is_past_recovery(now())


def endpoint_that_just_failed(tenant: Tenant) -> IsOpen:
    Endpoint.objects.create(
        tenant=tenant, url="https://example.com/", event_types=["*"], status="active", failing_since=START
    )
    return lambda: not endpoint_notices._changed().exists()


@dataclass(frozen=True)
class Window:
    """The promised length of a window, a function that begins it at START, and whether it is open at its end."""

    length: timedelta
    begin: Callable[[Tenant], IsOpen]
    includes_end: bool = False


HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WINDOWS = {
    "customer service": Window(DAY, customer_service),
    "console token": Window(12 * HOUR, console_token),
    "link of an invitation": Window(DAY, invitation_link, includes_end=True),
    "invitation in the list": Window(DAY, invitation_in_the_list),
    "link of a sign-up": Window(DAY, sign_up_link, includes_end=True),
    "request of a device log-in": Window(timedelta(minutes=10), device_request),
    "device code": Window(timedelta(minutes=10), device_code),
    "code of a connected app": Window(timedelta(minutes=1), code_of_a_connected_app),
    "access token of a connected app": Window(HOUR, access_token),
    "connected app": Window(90 * DAY, connected_app),
    "connect session": Window(HOUR, connect_session),
    "room of a connect session": Window(HOUR, room_of_a_connect_session),
    "result of a connect session": Window(
        timedelta(minutes=3), result_of_a_connect_session, includes_end=True
    ),
    "former secret of flows": Window(DAY, former_secret_of_flows),
    "support view": Window(timedelta(minutes=30), support),
    "rotated key": Window(DAY, rotated_key),
    "key of a device": Window(90 * DAY, key_of_a_device),
    "sign-ups of one address": Window(7 * DAY, sign_ups_of_one_address),
    "requests of app data": Window(DAY, requests_of_app_data),
    "mailed disconnection": Window(DAY, mailed_disconnection),
    "attempts counted together": Window(timedelta(minutes=5), attempts_counted_together),
    "endpoint that may recover": Window(5 * DAY, endpoint_that_may_recover),
    "endpoint that just failed": Window(timedelta(minutes=15), endpoint_that_just_failed),
    "fresh mirror of templates": Window(timedelta(minutes=10), mirror_of_templates, includes_end=True),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_exactly_as_long_as_promised(name: str, tenant: Tenant, clock: Clock) -> None:
    window = WINDOWS[name]
    is_open = window.begin(tenant)
    found = []
    for moment in (timedelta(), window.length - MOMENT, window.length, window.length + MOMENT):
        clock.moment = START + moment
        found.append(bool(is_open()))
    assert found == [True, True, window.includes_end, False]


@pytest.mark.parametrize(
    ("ahead", "is_taken"),
    [(timedelta(), False), (MOMENT, True), (90 * DAY, True), (90 * DAY + MOMENT, False)],
)
def test_a_message_is_scheduled_for_later_and_within_ninety_days(
    ahead: timedelta, is_taken: bool, clock: Clock
) -> None:
    asked = (START + ahead).isoformat()
    assert opens(lambda: scheduled_messages.moment_of(asked), InvalidRequest) == is_taken


@pytest.mark.parametrize(("age", "is_known"), [(DAY - MOMENT, True), (DAY, True), (DAY + MOMENT, False)])
def test_a_key_is_known_for_24_hours(tenant: Tenant, age: timedelta, is_known: bool) -> None:
    """Send rule 2. The test sets no clock, because the statements use the time of Postgres, which is constant in a
    transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        (moment,) = cursor.fetchone()
    use = idempotency.KeyUse(tenant.id, "live", "order-1", "/v1/messages", b"hash")
    assert run(idempotency.beginning(use)) is None
    IdempotencyRecord.objects.update(started_at=moment - age, status=200, body=b"{}")
    assert (run(idempotency.earlier(use)) is not None) == is_known
    assert (run(idempotency.beginning(use)) is not None) == is_known
    assert isinstance(run(idempotency.earlier(use)), idempotency.InProgress) != is_known


@pytest.mark.parametrize(
    ("age", "is_known"), [(30 * DAY - MOMENT, True), (30 * DAY, True), (30 * DAY + MOMENT, False)]
)
def test_a_reference_is_known_for_30_days(tenant: Tenant, age: timedelta, is_known: bool) -> None:
    """By the time of Postgres, which is constant in a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        (moment,) = cursor.fetchone()
    first, second = (
        Batch.objects.create(tenant=tenant, environment="live", phone_number_id="1", total=1, rate_per_sec=80)
        for _ in range(2)
    )
    references.acquire(first, [(0, "order-1")])
    MessageReference.objects.update(created_at=moment - age)
    assert bool(references.acquire(second, [(0, "order-1")])) == is_known
    MessageReference.objects.update(created_at=F("created_at") - MOMENT * 2)
    assert not references.acquire(second, [(0, "order-1")]), "a repetition does not extend the 30 days"
