"""Typical mistakes of integrators: each response says what is wrong and what to do about it."""

import gzip
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from gateway.clock import now
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants import platform_apps
from tenants.credentials import api_keys
from tenants.models import ApiKey, PlatformApp, Tenant
from tests.fixtures import Api, assert_error
from tests.front import mark_for

pytestmark = pytest.mark.django_db

UUID = "01a1fcf7-c4b7-7114-8090-8d27a4cd24a9"
EVENT = "evt_01M8E9QMWYE0DSE7MJGPQ9WPNS"
FORM = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\nx\r\n--x--\r\n'
TEXT = {"to": "919800000001", "type": "text", "text": {"body": "hi"}}


@dataclass(frozen=True)
class Mistake:
    """A call and its expected response: the message contains `says`, and the hint or the message contains `repair`."""

    name: str
    method: str
    path: str
    status: int
    says: str
    repair: str
    body: Any = None
    caller: str = "tenant"
    headers: dict[str, str] = field(default_factory=dict)


MISTAKES = [
    # Credentials
    Mistake(
        "no credentials",
        "GET",
        "/v1/tenant",
        401,
        "The request has no Authorization header",
        "Authorization: Bearer",
        caller="nobody",
    ),
    Mistake(
        "key without Bearer",
        "GET",
        "/v1/tenant",
        401,
        "does not begin with the word Bearer",
        "Authorization: Bearer",
        caller="nobody",
        headers={"Authorization": "wb_live_" + "a" * 40},
    ),
    Mistake(
        "basic authentication",
        "GET",
        "/v1/tenant",
        401,
        "does not begin with the word Bearer",
        "Authorization: Bearer",
        caller="nobody",
        headers={"Authorization": "Basic dTpw"},
    ),
    Mistake(
        "Bearer alone",
        "GET",
        "/v1/tenant",
        401,
        "no key after the word Bearer",
        "Authorization: Bearer",
        caller="nobody",
        headers={"Authorization": "Bearer "},
    ),
    Mistake(
        "token of Meta",
        "GET",
        "/v1/tenant",
        401,
        "an access token of Meta",
        "wb_live_",
        caller="nobody",
        headers={"Authorization": "Bearer EAAGm0PX4ZCpsBA"},
    ),
    Mistake(
        "prefix instead of the key",
        "GET",
        "/v1/tenant",
        401,
        "not an API key",
        "48 characters",
        caller="nobody",
        headers={"Authorization": "Bearer wb_live_AbCdEfGh"},
    ),
    Mistake(
        "placeholder",
        "GET",
        "/v1/tenant",
        401,
        "not an API key",
        "wb_live_",
        caller="nobody",
        headers={"Authorization": "Bearer $API_KEY"},
    ),
    Mistake(
        "key of elsewhere",
        "GET",
        "/v1/tenant",
        401,
        "This API key is unknown",
        "installation",
        caller="nobody",
        headers={"Authorization": "Bearer wb_live_" + "a" * 40},
    ),
    Mistake("revoked key", "GET", "/v1/tenant", 401, "was revoked at 20", "Make a new key", caller="revoked"),
    Mistake("expired key", "GET", "/v1/tenant", 401, "expired at 20", "Make a new key", caller="expired"),
    Mistake(
        "ended console token",
        "GET",
        "/v1/tenant",
        401,
        "console token is unknown or has expired",
        "12 hours",
        caller="nobody",
        headers={"Authorization": "Bearer wbc_" + "a" * 43},
    ),
    Mistake(
        "platform key without tenant",
        "GET",
        "/v1/numbers",
        400,
        "X-Service-Tenant",
        "send X-Service-Tenant",
        caller="platform",
    ),
    Mistake(
        "platform key with an unknown tenant",
        "GET",
        "/v1/numbers",
        404,
        "no such tenant",
        "right business and environment",
        caller="platform",
        headers={"X-Service-Tenant": UUID},
    ),
    Mistake(
        "tenant key on platform calls", "GET", "/v1/tenants", 403, "needs a platform key", "platform key"
    ),
    Mistake(
        "tenant key on staff calls",
        "GET",
        "/v1/admin/health",
        403,
        "for service staff",
        "console token of staff",
    ),
    Mistake(
        "another tenant's header",
        "GET",
        "/v1/numbers",
        403,
        "another tenant",
        "Leave X-Service-Tenant out",
        headers={"X-Service-Tenant": UUID},
    ),
    Mistake(
        "pending tenant", "GET", "/v1/numbers", 403, "not approved yet", "GET /v1/tenant", caller="pending"
    ),
    Mistake("suspended tenant", "GET", "/v1/numbers", 403, "suspended", "support", caller="suspended"),
    Mistake(
        "test key makes a live key",
        "POST",
        "/v1/api-keys",
        403,
        "test keys only",
        "with a live key",
        {"name": "x", "environment": "live"},
        caller="test",
    ),
    # Paths, methods, bodies
    Mistake(
        "trailing slash", "GET", "/v1/tenant/", 404, "nothing at /v1/tenant/", "Did you mean /v1/tenant?"
    ),
    Mistake(
        "missing /v1", "POST", "/messages", 404, "nothing at /messages", "Did you mean /v1/messages?", TEXT
    ),
    Mistake(
        "Graph path under /v1",
        "POST",
        "/v1/105/messages",
        404,
        "nothing at",
        "POST /v1/messages with the number as `from`",
        TEXT,
    ),
    Mistake("singular", "POST", "/v1/message", 404, "nothing at", "Did you mean /v1/messages?", TEXT),
    Mistake("id that is not a uuid", "DELETE", "/v1/api-keys/5", 404, "nothing at", "Check the id"),
    Mistake("unknown id", "DELETE", f"/v1/api-keys/{UUID}", 404, "no such API key", "Check the id"),
    Mistake("wrong method", "PUT", "/v1/tenant", 405, "only GET, PATCH", "Allow", {}),
    Mistake("GET of a read mark", "GET", "/v1/messages/read", 405, "only POST", "Allow"),
    Mistake(
        "form instead of JSON",
        "POST",
        "/v1/api-keys",
        415,
        "takes application/json",
        "Content-Type: application/json",
        b"name=x",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
    Mistake(
        "JSON instead of a form",
        "POST",
        "/v1/media",
        415,
        "takes multipart/form-data",
        "let your HTTP library set Content-Type with its boundary",
        {"file": "x"},
    ),
    Mistake(
        "form without a boundary",
        "POST",
        "/v1/media",
        400,
        "not a multipart form",
        "let your HTTP library set Content-Type with its boundary",
        b"x",
        headers={"Content-Type": "multipart/form-data"},
    ),
    Mistake(
        "headers in a list",
        "POST",
        "/v1/webhooks",
        400,
        "headers: Must be an object, in curly brackets.",
        "details.fields",
        {"url": "https://shop.example/hook", "headers": ["X-Shop: 17"]},
    ),
    Mistake(
        "JSON with a comma too many",
        "POST",
        "/v1/api-keys",
        400,
        "not valid JSON",
        "column",
        b'{"name": "x",}',
    ),
    Mistake(
        "compressed body",
        "POST",
        "/v1/api-keys",
        400,
        "The body is compressed",
        "without Content-Encoding",
        gzip.compress(b'{"name": "x"}'),
    ),
    Mistake(
        "JSON in UTF-16",
        "POST",
        "/v1/api-keys",
        400,
        "in UTF-8",
        "send the request again",
        "{}".encode("utf-16"),
    ),
    Mistake("id of a message", "GET", "/v1/events/wamid.1", 404, "no such", "belongs to /v1/messages/{id}"),
    Mistake(
        "id of an event",
        "GET",
        "/v1/messages/batch/evt_1/items",
        404,
        "no such",
        "belongs to /v1/events/{id}",
    ),
    Mistake("id of its kind", "GET", "/v1/messages/batch/bat_1/items", 404, "no such batch", "Check the id"),
    Mistake(
        "number by its digits", "GET", "/v1/numbers/+919800000001", 404, "no such number", "phone_number_id"
    ),
    Mistake(
        "list instead of object",
        "POST",
        "/v1/api-keys",
        400,
        "must be a JSON object",
        "send the request again",
        b"[]",
    ),
    Mistake(
        "unknown version",
        "GET",
        "/v1/tenant",
        400,
        "X-Service-Version",
        "2026-10-16",
        headers={"X-Service-Version": "2025-01-01"},
    ),
    # Query parameters
    Mistake(
        "mistyped filter",
        "GET",
        "/v1/events?typ=message.inbound",
        400,
        "typ: This query parameter is unknown",
        "Did you mean type?",
    ),
    Mistake(
        "filter of nothing",
        "GET",
        "/v1/api-keys?status=active",
        400,
        "status: This query parameter is unknown",
        "known ones are: cursor, limit",
    ),
    Mistake(
        "filter given twice",
        "GET",
        "/v1/events?wa_id=1&wa_id=2",
        400,
        "wa_id: This query parameter may be given only once",
        "only once",
    ),
    Mistake(
        "empty filter",
        "GET",
        "/v1/events?wa_id=",
        400,
        "wa_id: This query parameter is empty",
        "leave it out",
    ),
    Mistake(
        "limit too large", "GET", "/v1/events?limit=1000", 400, "limit: Must be a whole number", "1 to 200"
    ),
    Mistake("cursor made up", "GET", "/v1/events?cursor=2", 400, "cursor: Cannot be read", "next_cursor"),
    Mistake(
        "date that is none", "GET", "/v1/events?from=yesterday", 400, "from: Must be an ISO 8601", "ISO 8601"
    ),
    Mistake(
        "event type of another product",
        "GET",
        "/v1/events?type=message.receive",
        400,
        "type: Unknown: message.receive",
        "message.inbound",
    ),
    Mistake(
        "delivery status",
        "GET",
        "/v1/webhook-deliveries?status=fail",
        400,
        "status: Must be one of",
        "failed",
    ),
    Mistake(
        "boolean",
        "GET",
        "/v1/numbers/105000000000001?refresh=maybe",
        400,
        "refresh: Must be true or false",
        "send the request again",
    ),
    # Bodies
    Mistake(
        "missing name", "POST", "/v1/api-keys", 400, "name: This field is required", "details.fields", {}
    ),
    Mistake(
        "misspelt environment",
        "POST",
        "/v1/api-keys",
        400,
        'environment: "prod" is not a valid choice',
        "Must be one of: live, test",
        {"name": "x", "environment": "prod"},
    ),
    Mistake(
        "end in the past",
        "POST",
        "/v1/api-keys",
        400,
        "expires_at: Must be in the future",
        "details.fields",
        {"name": "x", "expires_at": "2020-01-01T00:00:00Z"},
    ),
    Mistake(
        "retention of another number",
        "PATCH",
        "/v1/tenant",
        400,
        'retention_days: "60" is not a valid choice',
        "30, 90, 180, 365",
        {"retention_days": 60},
    ),
    Mistake(
        "billing address that is none",
        "PATCH",
        "/v1/tenant",
        400,
        "billing_email: Enter a valid email address",
        "details.fields",
        {"billing_email": "accounts"},
    ),
    Mistake(
        "endpoint without scheme", "POST", "/v1/webhooks", 400, "url: ", "http", {"url": "shop.example/hook"}
    ),
    Mistake(
        "event type that is near",
        "POST",
        "/v1/webhooks",
        400,
        '"message.statuses" is not a valid choice',
        "Did you mean message.status?",
        {"url": "https://shop.example/hook", "event_types": ["message.statuses"]},
    ),
    Mistake(
        "event type of another gateway",
        "POST",
        "/v1/webhooks",
        400,
        '"message.received" is not a valid choice',
        "Did you mean one of message.inbound, message.status",
        {"url": "https://shop.example/hook", "event_types": ["message.received"]},
    ),
    Mistake(
        "key that ends on a day",
        "POST",
        "/v1/api-keys",
        400,
        "expires_at: Must be an ISO 8601 date-time",
        "2026-12-01T09:00:00Z",
        {"name": "server", "expires_at": "2999-12-01"},
    ),
    Mistake(
        "several recipients",
        "POST",
        "/v1/messages",
        400,
        "to: Must be one recipient",
        "POST /v1/messages/batch",
        {**TEXT, "from": "105000000000001", "to": ["+919812345678", "+919812345679"]},
    ),
    Mistake(
        "event types without brackets",
        "POST",
        "/v1/webhooks",
        400,
        "event_types: Must be a list, in square brackets.",
        "details.fields",
        {"url": "https://shop.example/hook", "event_types": "message.inbound"},
    ),
    Mistake(
        "verification by mail",
        "POST",
        "/v1/numbers/105000000000001/request-code",
        400,
        '"EMAIL" is not a valid choice',
        "SMS, VOICE",
        {"code_method": "EMAIL", "language": "en"},
    ),
    Mistake("a day in words", "GET", "/v1/events?from=yesterday", 400, "from: ", "2026-12-01T09:00:00Z"),
    # Sending
    Mistake(
        "Twilio's form",
        "POST",
        "/v1/messages",
        400,
        "type: ",
        '"text": {"body":',
        {"from": "105000000000001", "to": "+919812345678", "body": "x"},
    ),
    Mistake("no sender", "POST", "/v1/messages", 400, "from: ", "phone_number_id", TEXT),
    Mistake(
        "number that is not ours",
        "POST",
        "/v1/messages",
        400,
        "from: Not a number that this key sends from",
        "105000000000001",
        TEXT | {"from": "199"},
    ),
    Mistake(
        "live number with a test key",
        "POST",
        "/v1/messages",
        400,
        "from: This business has no test number yet",
        "connect-sessions",
        TEXT | {"from": "105000000000001"},
        caller="test",
    ),
    Mistake(
        "no recipient",
        "POST",
        "/v1/messages",
        400,
        "to: ",
        "recipient",
        {"from": "105000000000001", "type": "text", "text": {"body": "x"}},
    ),
    Mistake(
        "no type",
        "POST",
        "/v1/messages",
        400,
        "type: ",
        "details.fields",
        {"from": "105000000000001", "to": "919800000001"},
    ),
    Mistake(
        "number not registered",
        "POST",
        "/v1/messages",
        409,
        "not connected: not_registered",
        "POST /v1/numbers/105000000000001/register",
        TEXT | {"from": "105000000000001"},
    ),
    Mistake(
        "no verified endpoint",
        "POST",
        "/v1/messages",
        409,
        "not connected: no_verified_endpoint",
        "POST /v1/webhooks/{endpoint_id}/verify",
        TEXT | {"from": "105000000000002"},
    ),
    Mistake(
        "token of Meta invalid",
        "POST",
        "/v1/messages",
        409,
        "not connected: token_invalid",
        "POST /v1/connect-sessions",
        TEXT | {"from": "105000000000003"},
    ),
    Mistake(
        "account not subscribed",
        "POST",
        "/v1/messages",
        409,
        "not connected: not_subscribed",
        "POST /v1/numbers/105000000000004/subscribe",
        TEXT | {"from": "105000000000004"},
    ),
    Mistake(
        "key with a line break",
        "POST",
        "/v1/messages",
        400,
        "Idempotency-Key",
        "1 to 255",
        TEXT | {"from": "105000000000001"},
        headers={"Idempotency-Key": "ä"},
    ),
    Mistake(
        "batch without messages",
        "POST",
        "/v1/messages/batch",
        400,
        "messages",
        "details.fields",
        {"from": "105000000000001"},
    ),
    # The first hour
    Mistake(
        "key in X-API-Key",
        "GET",
        "/v1/tenant",
        401,
        "no Authorization header",
        "Authorization: Bearer",
        caller="nobody",
        headers={"X-API-Key": "wb_live_" + "a" * 40},
    ),
    Mistake(
        "key in the URL",
        "GET",
        "/v1/tenant?api_key=wb_live_" + "a" * 40,
        401,
        "no Authorization header",
        "Authorization: Bearer",
        caller="nobody",
    ),
    Mistake(
        "key in quotes",
        "GET",
        "/v1/tenant",
        401,
        "more than the key after the word Bearer",
        "without quotes",
        caller="nobody",
        headers={"Authorization": f'Bearer "wb_live_{"a" * 40}"'},
    ),
    Mistake(
        "Bearer twice",
        "GET",
        "/v1/tenant",
        401,
        "more than the key after the word Bearer",
        "without quotes, brackets or a second Bearer",
        caller="nobody",
        headers={"Authorization": f"Bearer Bearer wb_live_{'a' * 40}"},
    ),
    Mistake("two slashes", "POST", "/v1//messages", 404, "nothing at", "Did you mean /v1/messages?", TEXT),
    Mistake("/v1 twice", "POST", "/v1/v1/messages", 404, "nothing at", "Did you mean /v1/messages?", TEXT),
    Mistake("/api before", "POST", "/api/v1/messages", 404, "nothing at", "Did you mean /v1/messages?", TEXT),
    Mistake("upper case", "POST", "/V1/Messages", 404, "nothing at", "Did you mean /v1/messages?", TEXT),
    Mistake("version in the path", "GET", "/v2/events", 404, "nothing at", "Did you mean /v1/events?"),
    Mistake(
        "Graph version without a point",
        "POST",
        "/v23/105000000000001/messages",
        404,
        "nothing at",
        "POST /v1/messages with the number as `from`",
        TEXT,
    ),
    Mistake("id of nothing", "GET", f"/v1/events/{EVENT}", 404, "no such event", "business and environment"),
    Mistake(
        "id in lower case",
        "GET",
        f"/v1/events/{EVENT.lower()}",
        404,
        "no such event",
        "Check the id",
    ),
    Mistake(
        "customer by username",
        "GET",
        "/v1/numbers/105000000000001/customers/@asha",
        404,
        "neither a wa_id nor a user_id",
        "country code, such as 919812345678",
    ),
    Mistake(
        "next page of the last one", "GET", "/v1/events?cursor=null", 400, "cursor: ", "leave cursor out"
    ),
    Mistake("pages by number", "GET", "/v1/events?page=2", 400, "page: This query parameter", "cursor"),
    Mistake("date in seconds", "GET", "/v1/events?from=1764201600", 400, "from: ", "2026-12-01T09:00:00Z"),
    Mistake(
        "period backwards",
        "GET",
        "/v1/events?from=2026-11-20T00:00:00Z&to=2026-11-01T00:00:00Z",
        400,
        "from: Must not be after",
        "`to`",
    ),
    Mistake("POST instead of PATCH", "POST", "/v1/tenant", 405, "only GET, PATCH", "Allow", {}),
    Mistake("PUT of an endpoint", "PUT", f"/v1/webhooks/{UUID}", 405, "only GET, PATCH, DELETE", "Allow", {}),
    Mistake(
        "no Content-Type",
        "POST",
        "/v1/messages",
        415,
        "takes application/json",
        "Content-Type: application/json",
        json.dumps(TEXT).encode(),
        headers={"Content-Type": ""},
    ),
    Mistake(
        "JSON of JSON",
        "POST",
        "/v1/messages",
        400,
        "must be a JSON object",
        "send the request again",
        json.dumps(json.dumps(TEXT)).encode(),
    ),
    Mistake(
        "sender without quotes",
        "POST",
        "/v1/messages",
        400,
        "from: Must be a string, in quotes",
        "phone_number_id",
        TEXT | {"from": 105000000000001},
    ),
    Mistake(
        "read mark as WhatsApp has it",
        "POST",
        "/v1/messages",
        400,
        "status: This is a read mark",
        "POST /v1/messages/read",
        {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.1"},
    ),
    Mistake(
        "time on a send",
        "POST",
        "/v1/messages",
        400,
        "send_at: Nothing was sent",
        "POST /v1/messages/scheduled",
        TEXT | {"from": "105000000000001", "send_at": "2026-12-01T09:00:00Z"},
    ),
    Mistake(
        "batch as a list",
        "POST",
        "/v1/messages/batch",
        400,
        "must be a JSON object",
        "send the request",
        [TEXT],
    ),
    Mistake(
        "batch of numbers",
        "POST",
        "/v1/messages/batch",
        400,
        "recipients: This member is unknown",
        "messages",
        {"from": "105000000000001", "recipients": ["+919800000001"]},
    ),
    Mistake(
        "upload without a number",
        "POST",
        "/v1/media",
        400,
        "from: Required",
        "phone_number_id",
        FORM,
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    ),
    Mistake(
        "events instead of event_types",
        "POST",
        "/v1/webhooks",
        400,
        "events: This member is unknown",
        "Did you mean event_types?",
        {"url": "https://shop.example/hook", "events": ["message.inbound"]},
    ),
    Mistake(
        "password in an endpoint's URL",
        "POST",
        "/v1/webhooks",
        400,
        "url: The URL must not contain a user name",
        "details.fields",
        {"url": "https://user:password@shop.example/hook"},
    ),
    Mistake(
        "secret of one's own",
        "POST",
        "/v1/webhooks",
        400,
        "secret: Must be `whsec_`",
        "Leave it out",
        {"url": "https://shop.example/hook", "secret": "abc"},
    ),
    Mistake(
        "notification without a signature",
        "POST",
        "/upstream/webhook",
        401,
        "signature is missing",
        "X-Hub-Signature-256",
        {"object": "whatsapp_business_account"},
        caller="nobody",
    ),
    Mistake(
        "notification signed with another secret",
        "POST",
        "/upstream/webhook",
        401,
        "signature does not match the body",
        "META_APP_SECRET",
        {"object": "whatsapp_business_account"},
        caller="nobody",
        headers={"X-Hub-Signature-256": "sha256=" + "0" * 64},
    ),
    Mistake(
        "verify token of another app",
        "GET",
        "/upstream/webhook?hub.mode=subscribe&hub.challenge=1&hub.verify_token=x",
        403,
        "verify token does not match",
        "META_WEBHOOK_VERIFY_TOKEN",
        caller="nobody",
    ),
    # Numbers and staff
    Mistake(
        "PIN of five digits",
        "POST",
        "/v1/numbers/105000000000001/register",
        400,
        "pin: ",
        "six digits",
        {"pin": "12345"},
    ),
    Mistake("unknown number", "GET", "/v1/numbers/999", 404, "", "phone_number_id"),
    Mistake(
        "rejection without reason",
        "POST",
        f"/v1/admin/tenants/{UUID}/reject",
        400,
        "reason: This field is required",
        "details.fields",
        {},
        caller="staff",
    ),
    Mistake(
        "suspension reason",
        "POST",
        f"/v1/admin/tenants/{UUID}/suspend",
        400,
        '"spam" is not a valid choice',
        "abuse, admin",
        {"reason": "spam"},
        caller="staff",
    ),
]


def test_there_are_a_hundred_mistakes_of_different_names() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 100


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, id=mistake.name, marks=mark_for(mistake.method, mistake.path.partition("?")[0]))
        for mistake in MISTAKES
    ],
)
def test_a_mistake_is_answered_with_its_repair(
    mistake: Mistake, tenant: Tenant, platform_app: PlatformApp, request: pytest.FixtureRequest
) -> None:
    make_numbers(tenant)
    caller = make_caller(mistake.caller, tenant, platform_app, request)
    headers = {name.replace("-", "_"): value for name, value in mistake.headers.items()}
    content_type = headers.pop("Content_Type", "application/json")
    answer = caller.request(mistake.method, mistake.path, mistake.body, content_type=content_type, **headers)
    code = json.loads(answer.content)["error"]["code"]
    error = assert_error(answer, mistake.status, code)
    assert mistake.says in error["message"]
    assert mistake.repair in f"{error['hint']} {error['message']}"


def make_numbers(tenant: Tenant) -> None:
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="200", access_token="EAAx"
    )
    details = ("not_registered", "no_verified_endpoint", "token_invalid", "not_subscribed")
    for last, detail in enumerate(details, start=1):
        PhoneNumber.objects.create(
            tenant=tenant,
            account=account,
            environment="live",
            phone_number_id=f"10500000000000{last}",
            connection_state="pending",
            connection_detail=detail,
        )


def make_caller(kind: str, tenant: Tenant, app: PlatformApp, request: pytest.FixtureRequest) -> Api:
    if kind == "nobody":
        return Api(None)
    if kind == "staff":
        staff_api: Api = request.getfixturevalue("staff_api")
        return staff_api
    if kind == "platform":
        return Api(platform_apps.create_app_key(app_id=app.id, name="k", environment="live").key)
    new = api_keys.create(name="k", environment="test" if kind == "test" else "live", tenant=tenant)
    if kind == "revoked":
        api_keys.revoke(keys=ApiKey.objects.all(), key_id=new.row.id)
    if kind == "expired":
        ApiKey.objects.filter(pk=new.row.id).update(expires_at=now() - timedelta(minutes=1))
    if kind in {"pending", "suspended"}:
        status = {"pending": "pending_approval"}.get(kind, kind)
        Tenant.objects.filter(pk=tenant.id).update(status=status)
    return Api(new.key)
