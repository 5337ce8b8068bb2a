"""One phone number: its fields, registration, verification, two-step PIN, overrides (upstream facts
1.5, 1.7).
"""

import hmac
import random
import time
from typing import Any

from simulator import app_data
from simulator.errors import GraphError, invalid_parameter, no_such_object
from simulator.graph import health
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.fields import select, with_edges
from simulator.graph.oauth import verify_callback
from simulator.graph.schema import read_fields
from simulator.world.identifiers import graph_time
from simulator.world.records import Number

LIST_FIELDS = ("id", "display_phone_number", "verified_name", "quality_rating", "code_verification_status",
               "platform_type", "throughput", "webhook_configuration")  # fmt: skip
_REGISTRATIONS = 10
_REGISTRATION_SECONDS = 72 * 3600
_CODE_REQUESTS = 5
_CODE_REQUEST_SECONDS = 3600
_PIN_GUESSES = 5
_CHANGES = {
    "connection_status": "text",
    "new_display_name": "text",
    "pin": "text",
    "search_visibility": "text",
    "username": "text",
    "webhook_configuration": "object",
    "whatsapp_business_api_data": "object",
}
"""Members that `POST /{number}` can change. `connection_status` is accepted without effect."""
_ALLOWED = {
    "connection_status": (
        "CONNECTED", "DISCONNECTED", "PENDING", "FLAGGED", "RESTRICTED", "RATE_LIMITED",
        *(f"MESSAGING_LIMIT_TIER_{tier}" for tier in range(5)),
    ),
    "search_visibility": ("VISIBLE", "HIDDEN"),
}  # fmt: skip


def number_fields(call: Call, number: Number) -> dict[str, Any]:
    """Every field of a number."""
    account = call.sim.state.accounts[number.waba_id]
    subscription = call.sim.state.app_subscription
    callbacks = {
        "application": subscription["callback_url"] if subscription else call.sim.config.callback_url,
        "whatsapp_business_account": account.override_callback_uri,
        "phone_number": number.override_callback_uri,
    }
    return {
        "id": number.id,
        "display_phone_number": number.display_phone_number,
        "verified_name": number.verified_name,
        "quality_rating": number.quality_rating,
        "quality_score": {"score": number.quality_rating},
        "messaging_limit_tier": number.messaging_limit_tier,
        "whatsapp_business_manager_messaging_limit": number.messaging_limit_tier,
        "throughput": {"level": number.throughput},
        "name_status": number.name_status,
        "new_name_status": "NONE",
        "new_display_name": None,
        **call.sim.state.objects.get(f"{number.id}/display_name", {}).get("", {}),
        "code_verification_status": number.code_verification_status,
        "platform_type": number.platform_type,
        "host_platform": number.platform_type,
        "unified_cert_status": number.name_status,
        "username": call.sim.state.objects.get(f"{number.id}/username", {}).get("", {}).get("username", ""),
        "status": number.status,
        "account_mode": number.account_mode,
        "is_official_business_account": number.is_official_business_account,
        "is_pin_enabled": number.pin is not None,
        "is_on_biz_app": number.is_on_biz_app,
        "last_onboarded_time": number.last_onboarded_time,
        "is_preverified_number": False,
        "search_visibility": "NON_VISIBLE",
        **call.sim.state.objects.get(f"{number.id}/search_visibility", {}).get("", {}),
        "eligibility_for_api_business_global_search": "NON_ELIGIBLE_UNDEFINED_COUNTRY",
        "conversational_automation": _automation(call, number),
        "certificate": None,
        "new_certificate": None,
        "country_dial_code": number.digits[: len(number.digits) - 10] or None,
        "country_code": number.digits[: len(number.digits) - 10] or None,
        "webhook_configuration": {name: url for name, url in callbacks.items() if url},
        "health_status": health.of_number(call, number),
    }


def _automation(call: Call, number: Number) -> dict[str, Any] | None:
    kept = call.sim.state.objects.get(f"{number.id}/conversational_automation", {}).get("")
    return {**kept, "id": number.id} if kept is not None else None


async def get_number(call: Call) -> dict[str, Any]:
    """GET /{number}: read a number."""
    return select(call, await with_edges(call, number_fields(call, call.number())), LIST_FIELDS)


async def update_number(call: Call) -> dict[str, Any]:
    """POST /{number}: set one or several of: the two-step PIN, the number's own callback, a name (which awaits review),
    a user name, other members from Meta's OpenAPI (v23.0, 2025-11).
    """
    number = call.number()
    given = read_fields(call.params(), _CHANGES, ())
    if not given:
        raise invalid_parameter("Invalid parameter")
    for name, allowed in _ALLOWED.items():
        if name in given and given[name] not in allowed:
            raise invalid_parameter(f"Param {name} must be one of {{{', '.join(allowed)}}}")
    data = given.pop("whatsapp_business_api_data", {})
    pin = _pin({**data, **given}) if "pin" in {*data, *given} else None
    wanted = given.pop("webhook_configuration", None)
    if wanted is not None:
        url = wanted.get("override_callback_uri") or None
        if url:
            await verify_callback(call, str(url), str(wanted.get("verify_token", "")))
        number.override_callback_uri = url
        number.override_verify_token = wanted.get("verify_token") if url else None
    if pin is not None:
        number.pin, number.pin_failures = pin, 0
        call.sim.notifier.publish(
            waba_id=number.waba_id,
            field="security",
            value={"display_phone_number": number.digits, "event": "PIN_CHANGED"},
        )
    kept = call.sim.state.objects
    if display_name := given.get("new_display_name"):
        waiting = {"new_display_name": display_name, "new_name_status": "PENDING_REVIEW"}
        kept[f"{number.id}/display_name"] = {"": waiting}
    if "username" in given:
        kept[f"{number.id}/username"] = {"": {"username": given["username"]}}
    if "search_visibility" in given:
        kept[f"{number.id}/search_visibility"] = {"": {"search_visibility": given["search_visibility"]}}
    call.sim.state.changed()
    return {"success": True}


def _pin(params: dict[str, Any]) -> str:
    pin = text_of(params, "pin")
    if len(pin) != 6 or not pin.isdigit():
        raise invalid_parameter("Param pin must be a string of 6 digits")
    return pin


def _not_coexistence(number: Number) -> None:
    if number.is_on_biz_app:
        raise GraphError(
            100, "This number is used with the WhatsApp Business app and cannot be changed here."
        )


def _spend_registration(call: Call, number: Number) -> None:
    now = time.time()
    number.registrations = [at for at in number.registrations if at > now - _REGISTRATION_SECONDS]
    if call.sim.settings.throttling.registrations and len(number.registrations) >= _REGISTRATIONS:
        raise GraphError(133016)
    number.registrations.append(now)


async def register_number(call: Call) -> dict[str, Any]:
    """POST /{number}/register: enable the number to send. The PIN must match if the number has one."""
    number = call.number()
    params = call.params()
    if params.get("messaging_product") != "whatsapp":
        raise invalid_parameter("The parameter messaging_product is required.")
    pin = _pin(params)
    _not_coexistence(number)
    if number.code_verification_status != "VERIFIED":
        raise GraphError(133006, "The number must be verified before it is registered.")
    _spend_registration(call, number)
    if number.pin_failures >= _PIN_GUESSES:
        raise GraphError(133008, "The PIN was guessed wrong too often.")
    if number.pin is not None and not hmac.compare_digest(number.pin, pin):
        number.pin_failures += 1
        raise GraphError(133005)
    number.pin, number.pin_failures = pin, 0
    number.platform_type, number.status = "CLOUD_API", "CONNECTED"
    if number.throughput == "NOT_APPLICABLE":
        number.throughput = "STANDARD"
    number.last_onboarded_time = graph_time()
    for other in call.sim.state.numbers.values():
        if other.digits == number.digits and other is not number:
            other.status, other.platform_type = "MIGRATED", "NOT_APPLICABLE"
    call.sim.state.changed()
    return {"success": True}


async def deregister_number(call: Call) -> dict[str, Any]:
    """POST /{number}/deregister: disable the number."""
    number = call.number()
    _not_coexistence(number)
    _spend_registration(call, number)
    number.platform_type, number.status, number.throughput = (
        "NOT_APPLICABLE",
        "DISCONNECTED",
        "NOT_APPLICABLE",
    )
    call.sim.state.changed()
    return {"success": True}


async def request_code(call: Call) -> dict[str, Any]:
    """POST /{number}/request_code: create a code. `GET /sim/accounts/{waba}` shows the code. No SMS is sent."""
    number = call.number()
    params = call.params()
    if text_of(params, "code_method") not in {"SMS", "VOICE"}:
        raise invalid_parameter("Param code_method must be one of {SMS, VOICE}")
    text_of(params, "language")
    _not_coexistence(number)
    now = time.time()
    number.code_requests = [at for at in number.code_requests if at > now - _CODE_REQUEST_SECONDS]
    if number.code_verification_status == "VERIFIED" and number.registered:
        raise GraphError(136024, "The number is verified already.")
    if call.sim.settings.throttling.registrations and len(number.code_requests) >= _CODE_REQUESTS:
        raise GraphError(136024)
    number.code_requests.append(now)
    number.verification_code = f"{random.randrange(10**6):06d}"
    call.sim.state.changed()
    return {"success": True}


async def verify_code(call: Call) -> dict[str, Any]:
    """POST /{number}/verify_code: verify the number with the code."""
    number = call.number()
    given = text_of(call.params(), "code")
    if number.verification_code is None or not hmac.compare_digest(
        number.verification_code.encode(), given.encode()
    ):
        raise GraphError(136025)
    number.verification_code = None
    number.code_verification_status = "VERIFIED"
    call.sim.state.changed()
    return {"success": True, "id": number.id}


async def sync_app_data(call: Call) -> dict[str, Any]:
    """POST /{number}/smb_app_data: request the contacts or the history of a coexistence number. Each can be requested
    once (upstream fact 1.10).
    """
    number = call.number()
    kind = text_of(call.params(), "sync_type")
    if not number.is_on_biz_app or kind not in {"smb_app_state_sync", "history"}:
        raise no_such_object(call.node, "POST")
    if kind in number.synced:
        raise GraphError(2593107)
    number.synced.append(kind)
    app_data.send(call.sim, number, kind)
    return {"messaging_product": "whatsapp", "request_id": f"sync{random.randrange(10**12)}"}


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.node("GET", lambda sim, node: node in sim.state.numbers, get_number)
    table.node("POST", lambda sim, node: node in sim.state.numbers, update_number)
    for name, handler in (
        ("register", register_number),
        ("deregister", deregister_number),
        ("request_code", request_code),
        ("verify_code", verify_code),
        ("smb_app_data", sync_app_data),
    ):
        table.edge("POST", name, handler)
