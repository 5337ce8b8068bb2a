"""Examples of the OpenAPI document: every JSON body and response without an example gets one from its schema.

A postprocessing hook of drf-spectacular, after `names.py`. Messages and events use the examples of the guides. This
module makes the others, with values that suit the members' names. People send the body of a request as it stands: the
reference and the collections fill their forms with it.
"""

from typing import Any

from gateway.api.openapi.names import Json, resolved

MOST_DEEP = 6
_UUID = "019a3e5c-6f00-7a11-8c22-0123456789ab"
_MOMENT = "2026-11-01T07:06:41.120Z"
BY_NAME: Json = {
    "phone_number_id": "200300400500600",
    "display_phone_number": "919800000001",
    "waba_id": "100200300400500",
    "wamid": "wamid.HBgMOTE5ODEyMzQ1Njc4FQIAERgSMEExQjJDM0Q0RTVGNjA3MThBAA==",
    "wa_id": "919812345678",
    "customer_id": "919812345678",
    "filter": {"data.message.type": "button"},
    "user_id": "IN.77889900112233445566",
    "event_id": "evt_01M6AYX330E008000000000001",
    "batch_id": "bat_01M6AYX330E008000000000001",
    "request_id": "req_01M6AYX330E008000000000001",
    "dedupe_key": "msg:wamid.HBgMOTE5ODEyMzQ1Njc4FQIAEhgg01",
    "api_version": "2026-10-16",
    "url": "https://shop.example/hook",
    "return_url": "https://shop.example/connected",
    "email": "owner@shop.example",
    "billing_email": "accounts@shop.example",
    "name": "Asha Traders",
    "verified_name": "Asha Traders",
    "prefix": "wb_live_AbCdEfGh",
    "key": "wb_live_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789abcd",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "secret_prefix": "whsec_MfKQ",
    "pin": "482913",
    "code": "482913",
    "country": "IN",
    "country_code": "91",
    "cc": "91",
    "phone": "+919812345678",
    "phone_number": "9800000001",
    "client_ref": "november-news",
    "currency": "INR",
    "language": "en_US",
    "quality_rating": "GREEN",
    "messaging_limit_tier": "TIER_2K",
    "throughput_level": "STANDARD",
    "name_status": "APPROVED",
    "http_status": 200,
    "last_http_status": 200,
    "sha": "4bdf5f2",
}
"""Example values by the name of a member, used where the member's schema accepts them."""
_CUSTOMER = "+919812345678"
REQUESTS: Json = {
    "connect_account": {"waba_id": BY_NAME["waba_id"], "access_token": "EAAG0123456789"},
    "create_webhook": {"url": BY_NAME["url"], "event_types": ["message.inbound", "message.status"]},
    "decide_test_template": {"template_id": "1234567890", "event": "APPROVED"},
    "preview_webhook_filter": {"filter": BY_NAME["filter"]},
    "register_number": {},
    "rotate_webhook_secret": {"overlap_hours": 24},
    "schedule_message": {
        "from": BY_NAME["phone_number_id"],
        "to": _CUSTOMER,
        "send_at": "2027-01-15T09:00:00+05:30",
        "type": "text",
        "text": {"body": "Your order 4711 is ready."},
    },
    "send_test_echo": {"to": _CUSTOMER, "text": "Your order 4711 is ready."},
    "send_test_inbound": {"from": _CUSTOMER, "text": "Do you have it?"},
    "set_test_preference": {"from": _CUSTOMER, "value": "stop"},
    "set_test_status": {"message_id": BY_NAME["wamid"], "status": "delivered"},
    "start_test_call": {"from": _CUSTOMER},
    "update_billing_profile": {
        "legal_name": "Asha Traders",
        "address": "12 MG Road",
        "city": "Bengaluru",
        "pin": "560001",
        "state_code": "29",
        "country": "IN",
    },
    "update_tenant": {"retention_days": 365},
    "update_webhook": {"event_types": ["message.inbound", "message.status"]},
}
"""The example bodies of requests, by operation, where the schema alone would make a body that is refused or does harm.
None holds a secret: it would be one that everybody knows.
"""
EMPTY_WHERE_NULLABLE = (
    "revoked_at",
    "expires_at",
    "error",
    "last_error",
    "connection_detail",
    "next_cursor",
    "replay_of",
)
_BY_FORMAT = {
    "uuid": _UUID,
    "date-time": _MOMENT,
    "date": "2026-11-01",
    "uri": "https://shop.example/",
    "email": "owner@shop.example",
}
_BY_TYPE = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def examples(result: Json, **_: Any) -> Json:
    """Postprocessing: add an example to each JSON body and each successful JSON response."""
    maker = _Maker(result)
    for operations in result["paths"].values():
        for operation in operations.values():
            given = REQUESTS.get(operation["operationId"])
            contents = [(operation.get("requestBody", {}).get("content", {}), False)]
            contents += [
                (answer.get("content", {}), True)
                for status, answer in operation["responses"].items()
                if status.startswith("2")
            ]
            for content, whole in contents:
                body = content.get("application/json")
                if body is not None and not {"example", "examples"} & body.keys():
                    is_given = given is not None and not whole
                    body["example"] = given if is_given else maker.made(body["schema"], whole=whole)
    return result


class _Maker:
    """Makes examples for the schemas of one document."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def made(self, schema: Json, name: str = "", *, whole: bool, depth: int = 0) -> Any:
        """An example of a schema. With `whole`, an object has all members. Without `whole`, as in requests, it has only
        the required ones.
        """
        schema = resolved(self._document, schema)
        for known in ("example", "const", "default"):
            if known in schema:
                return schema[known]
        if schema.get("examples"):
            return schema["examples"][0]
        for union in ("oneOf", "anyOf", "allOf"):
            if union in schema:
                return self.made(schema[union][0], name, whole=whole, depth=depth)
        kinds = schema.get("type", "object")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if "null" in kinds and (name in EMPTY_WHERE_NULLABLE or depth > MOST_DEEP):
            return None
        if "enum" in schema:
            return schema["enum"][0]
        if kinds[0] == "array":
            items = (
                []
                if depth > MOST_DEEP
                else [
                    self.made(schema.get("items", {}), name.removesuffix("s"), whole=whole, depth=depth + 1)
                ]
            )
            return items * schema.get("minItems", 1)
        if kinds[0] == "object":
            return self._object(schema, whole=whole, depth=depth)
        return _value(name, kinds[0], schema)

    def _object(self, schema: Json, *, whole: bool, depth: int) -> Json:
        members: Json = schema.get("properties", {})
        required = schema.get("required", [])
        wanted = list(members) if (whole and depth < MOST_DEEP) or not required else required
        return {
            name: self.made(members[name], name, whole=whole, depth=depth + 1)
            for name in wanted
            if name in members
        }


def _value(name: str, kind: str, schema: Json) -> Any:
    known = BY_NAME.get(name)
    if schema.get("format") in _BY_FORMAT and kind == "string":
        return known if schema["format"] in {"uri", "email"} and known else _BY_FORMAT[schema["format"]]
    if isinstance(known, str) and kind == "string":
        return known[: schema.get("maxLength", len(known))]
    if isinstance(known, int) and kind == "integer":
        return known
    if kind == "string" and name.endswith("_at"):
        return _MOMENT
    if kind in {"integer", "number"} and "minimum" in schema:
        return max(schema["minimum"], min(1, schema.get("maximum", 1)))
    return _BY_TYPE.get(kind)
