"""Tokens and the app: code exchange, app token, `debug_token`, the app's webhook subscription (upstream facts
1.6, 1.8).
"""

import re
import time
from typing import Any

from simulator.errors import GraphError, invalid_parameter
from simulator.graph.dispatch import Call, Table, find_token, require_app, text_of
from simulator.world.records import Token

# The fields to which an app can subscribe (upstream fact 3.14). Other names are error 100.
FIELDS = frozenset(
    [
        "messages",
        "message_template_status_update",
        "message_template_quality_update",
        "message_template_components_update",
        "template_category_update",
        "template_correct_category_detection",
        "phone_number_quality_update",
        "phone_number_name_update",
        "account_update",
        "account_alerts",
        "account_review_update",
        "account_settings_update",
        "business_capability_update",
        "business_status_update",
        "security",
        "user_preferences",
        "user_id_update",
        "smb_message_echoes",
        "message_echoes",
        "smb_app_state_sync",
        "history",
        "flows",
        "calls",
        "group_lifecycle_update",
        "group_participants_update",
        "group_settings_update",
        "group_status_update",
        "payment_configuration_update",
        "partner_solutions",
        "automatic_events",
        "tracking_events",
        "business_username_update",
        "standby",
        "messaging_handovers",
    ]
)


async def access_token(call: Call) -> dict[str, Any]:
    """GET or POST /oauth/access_token: exchange a code, or get the app's own token."""
    if call.node != "oauth":
        raise GraphError(2500, message="Unknown path components: /access_token", status=400)
    config = call.sim.config
    params = call.params()
    if text_of(params, "client_id") != config.app_id:
        raise GraphError(101)
    if text_of(params, "client_secret") != config.app_secret:
        raise GraphError(1, message="Error validating client secret.")
    grant = params.get("grant_type")
    if grant == "client_credentials":
        return {"access_token": f"{config.app_id}|{config.app_secret}", "token_type": "bearer"}
    if grant == "fb_exchange_token":
        old = find_token(call.sim, text_of(params, "fb_exchange_token"))
        return _granted(
            call.sim.state.issue_token(old.waba_ids or list(call.sim.state.accounts), variant="60_days")
        )
    return _granted(_exchange(call, text_of(params, "code")))


def _exchange(call: Call, value: str) -> Token:
    code = call.sim.state.codes.get(value)
    if code is None:
        raise GraphError(100, message="Invalid verification code format.", subcode=36008)
    if code.used:
        raise GraphError(100, message="This authorization code has been used.", subcode=36009)
    if code.expires_at < time.time():
        raise GraphError(100, message="This authorization code has expired.", subcode=36007)
    code.used = True
    return call.sim.state.issue_token([code.waba_id], variant=code.variant)


def _granted(token: Token) -> dict[str, Any]:
    answer: dict[str, Any] = {"access_token": token.value, "token_type": "bearer"}
    if token.expires_at:
        answer["expires_in"] = max(0, token.expires_at - int(time.time()))
    return answer


async def debug_token(call: Call) -> dict[str, Any]:
    """GET /debug_token: describe a token. For an unknown token the answer is 200 with `is_valid: false`."""
    if call.token.kind != "APP" and call.token.app_id != call.sim.config.app_id:
        raise invalid_parameter(
            "You must provide an app access token, or a user access token that is an owner or developer of the app"
        )
    value = text_of(call.params(), "input_token")
    app_token = f"{call.sim.config.app_id}|{call.sim.config.app_secret}"
    if value == app_token:
        about = {"app_id": call.sim.config.app_id, "type": "APP", "application": "Simulated app"}
        return {"data": {**about, "is_valid": True, "scopes": []}}
    token = call.sim.state.tokens.get(value)
    if token is None or token.invalidated:
        why = "Error validating access token: The session has been invalidated because the password was changed."
        return {
            "data": {
                "error": {"code": 190, "message": why, "subcode": 460},
                "is_valid": False,
                "scopes": [],
            }
        }
    data: dict[str, Any] = {
        "app_id": token.app_id,
        "type": token.kind,
        "application": "Simulated app" if token.app_id == call.sim.config.app_id else "Another app",
        "data_access_expires_at": token.data_access_expires_at,
        "expires_at": token.expires_at,
        "is_valid": True,
        "issued_at": token.issued_at,
        "scopes": token.scopes,
        "granular_scopes": [_granular(token, scope) for scope in token.scopes if scope != "public_profile"],
        "user_id": "1220000000001",
    }
    if token.expires_at and token.expires_at <= time.time():
        data["is_valid"] = False
        data["error"] = {
            "code": 190,
            "message": "Error validating access token: Session has expired.",
            "subcode": 463,
        }
    return {"data": data}


def _granular(token: Token, scope: str) -> dict[str, Any]:
    # A scope without targets means all assets (upstream fact 0.8).
    return {"scope": scope} if token.waba_ids is None else {"scope": scope, "target_ids": token.waba_ids}


async def get_subscriptions(call: Call) -> dict[str, Any]:
    """GET /{app}/subscriptions: read the app's subscription."""
    require_app(call)
    subscription = call.sim.state.app_subscription
    if subscription is None:
        return {"data": []}
    fields = [{"name": name, "version": call.version} for name in subscription["fields"]]
    return {
        "data": [
            {
                "object": "whatsapp_business_account",
                "callback_url": subscription["callback_url"],
                "active": True,
                "fields": fields,
            }
        ]
    }


async def set_subscriptions(call: Call) -> dict[str, Any]:
    """POST /{app}/subscriptions: set the app's callback and fields, after the callback has answered the challenge."""
    require_app(call)
    params = call.params()
    if text_of(params, "object") != "whatsapp_business_account":
        raise invalid_parameter("Param object must be whatsapp_business_account")
    callback, token = text_of(params, "callback_url"), str(params.get("verify_token", ""))
    given = params.get("fields") or ""
    names = [str(name) for name in given] if isinstance(given, list) else re.findall(r"[\w]+", str(given))
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise invalid_parameter(
            f"Param fields[0] must be one of {{{', '.join(sorted(FIELDS))}}} - got {unknown[0]!r}"
        )
    await verify_callback(call, callback, token)
    before = call.sim.state.app_subscription
    kept = before["fields"] if before else []
    call.sim.state.app_subscription = {
        "callback_url": callback,
        "verify_token": token,
        "fields": sorted({*kept, *names}),
    }
    call.sim.state.changed()
    return {"success": True}


async def delete_subscriptions(call: Call) -> dict[str, Any]:
    """DELETE /{app}/subscriptions: return to the callback with which the simulator was started."""
    require_app(call)
    call.sim.state.app_subscription = None
    call.sim.state.changed()
    return {"success": True}


async def verify_callback(call: Call, url: str, verify_token: str) -> None:
    """Send the challenge to a callback (upstream fact 3.1). Raises error 2200 if the callback fails to answer it."""
    reason = await call.sim.notifier.verify_callback(url, verify_token)
    if reason:
        raise GraphError(
            2200, message=f"(#2200) Callback verification failed with the following errors: {reason}"
        )


def register(table: Table) -> None:
    """Register these routes in the table."""
    for method in ("GET", "POST"):
        table.edge(method, "access_token", access_token)
    table.root("GET", "debug_token", debug_token)
    table.edge("GET", "subscriptions", get_subscriptions)
    table.edge("POST", "subscriptions", set_subscriptions)
    table.edge("DELETE", "subscriptions", delete_subscriptions)
