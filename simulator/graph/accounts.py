"""Business accounts: their fields, their numbers, and the app's subscription to them (upstream facts 1.5 and
1.6).
"""

from typing import Any

from simulator.errors import GraphError, invalid_parameter
from simulator.graph import analytics, health
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.fields import page, select, with_edges
from simulator.graph.numbers import LIST_FIELDS, number_fields
from simulator.graph.oauth import verify_callback
from simulator.graph.schema import read_fields
from simulator.world.identifiers import digits_of
from simulator.world.records import Account, Number

_DEFAULT = ("id", "name", "timezone_id", "message_template_namespace")


def account_fields(call: Call, account: Account) -> dict[str, Any]:
    """Every field of an account."""
    return {
        "id": account.waba_id,
        "name": account.name,
        "currency": account.currency,
        "country": account.country,
        "timezone_id": account.timezone_id,
        "account_review_status": account.account_review_status,
        "business_verification_status": "verified",
        "owner_business_info": {"name": account.name, "id": account.business_id},
        "on_behalf_of_business_info": {"name": account.name, "id": account.business_id, "status": "APPROVED"},
        "message_template_namespace": f"{int(account.waba_id) & 0xFFFFFFFF:08x}_0000_4000_8000_000000000000",
        "health_status": health.of_account(call, account),
        "status": account.status,
        "ownership_type": "CLIENT_OWNED",
        "primary_business_location": account.country,
        "is_enabled_for_insights": True,
        "marketing_messages_lite_api_status": "ONBOARDED",
        "marketing_messages_onboarding_status": "ONBOARDED",
        "disable_marketing_messages_on_cloud_api": False,
        "creation_time": 1760000000,
        "purchase_order_number": None,
        "auth_international_rate_eligibility": None,
        "is_shared_with_partners": False,
        "phone_numbers": {
            "data": [number_fields(call, call.sim.state.numbers[number_id]) for number_id in account.numbers]
        },
        **analytics.account_fields(call, account),
        "whatsapp_business_manager_messaging_limit": "TIER_2K",
    }


async def get_account(call: Call) -> dict[str, Any]:
    """GET /{waba}: read an account."""
    return select(call, await with_edges(call, account_fields(call, call.account())), _DEFAULT)


async def update_account(call: Call) -> dict[str, Any]:
    """POST /{waba}: change the name or the time zone, or switch template analytics on, which cannot be switched off
    again.
    """
    account, params = call.account(), call.params()
    given = read_fields(
        params, {"name": "text", "timezone_id": "text", "is_enabled_for_insights": "flag"}, ()
    )
    if not given:
        raise invalid_parameter("Invalid parameter")
    if given.get("is_enabled_for_insights") is False:
        raise invalid_parameter("Param is_enabled_for_insights must be true")
    account.name = given.get("name", account.name)
    account.timezone_id = given.get("timezone_id", account.timezone_id)
    call.sim.state.changed()
    return {"success": True, "id": account.waba_id}


async def list_numbers(call: Call) -> dict[str, Any]:
    """GET /{waba}/phone_numbers: list the numbers."""
    account = call.account()
    numbers = [call.sim.state.numbers[number_id] for number_id in account.numbers]
    return page(call, numbers, lambda n: n.id, lambda n: select(call, number_fields(call, n), LIST_FIELDS))


async def create_number(call: Call) -> dict[str, Any]:
    """POST /{waba}/phone_numbers: add a number, or start its migration from another account."""
    account = call.account()
    params = call.params()
    digits = digits_of(text_of(params, "cc")) + digits_of(text_of(params, "phone_number"))
    if not 8 <= len(digits) <= 15:
        raise invalid_parameter("Param phone_number is not a valid phone number")
    held = call.sim.state.number_by_digits(digits)
    if held is not None and held.waba_id == account.waba_id:
        raise invalid_parameter(
            "The number is already part of this account.", subcode=2388012, title="Number exists"
        )
    if params.get("migrate_phone_number") in {True, "true", "True", "1"}:
        _check_migration(held)
    elif held is not None:
        raise invalid_parameter(
            "The number is registered with another WhatsApp account.", subcode=2388012, title="Number exists"
        )
    name = str(params.get("verified_name") or (held.verified_name if held else account.name))
    number = call.sim.state.create_number(account, digits=digits, verified_name=name, registered=False)
    number.code_verification_status = "NOT_VERIFIED"
    if held is not None:
        number.quality_rating, number.messaging_limit_tier = held.quality_rating, held.messaging_limit_tier
        number.is_official_business_account = held.is_official_business_account
    return {"id": number.id}


def _check_migration(held: Number | None) -> None:
    if held is not None and (held.pin is not None or held.locked_elsewhere or held.name_status != "APPROVED"):
        raise invalid_parameter(
            "The number cannot be migrated: switch two-step verification off at the present provider first.",
            subcode=2388103,
            title="Cannot migrate number",
        )


async def get_subscribed_apps(call: Call) -> dict[str, Any]:
    """GET /{waba}/subscribed_apps: list the subscribed app, if any."""
    account = call.account()
    if not account.subscribed:
        return {"data": []}
    config = call.sim.config
    app = {"id": config.app_id, "name": "Simulated app", "link": f"{config.base_url}/"}
    row: dict[str, Any] = {"whatsapp_business_api_data": app}
    if account.override_callback_uri:
        row["override_callback_uri"] = account.override_callback_uri
    return {"data": [row]}


async def subscribe(call: Call) -> dict[str, Any]:
    """POST /{waba}/subscribed_apps: subscribe the app, and remove the override. For a subscribed app, a call can also
    set an override.
    """
    account = call.account()
    params = call.params()
    override = params.get("override_callback_uri")
    if override:
        if not account.subscribed:
            raise GraphError(
                100,
                message="(#100) Before override the current callback uri, your app must be subscribed to "
                "receive messages for WhatsApp Business Account",
            )
        if len(str(override)) > 200:
            raise invalid_parameter("Param override_callback_uri must be at most 200 characters")
        token = text_of(params, "verify_token")
        await verify_callback(call, str(override), token)
        account.override_callback_uri, account.override_verify_token = str(override), token
    else:
        account.subscribed = True
        account.override_callback_uri = account.override_verify_token = None
    call.sim.state.changed()
    return {"success": True}


async def unsubscribe(call: Call) -> dict[str, Any]:
    """DELETE /{waba}/subscribed_apps: unsubscribe the app."""
    account = call.account()
    account.subscribed = False
    account.override_callback_uri = account.override_verify_token = None
    call.sim.state.changed()
    return {"success": True}


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.node("GET", lambda sim, node: node in sim.state.accounts, get_account)
    table.node("POST", lambda sim, node: node in sim.state.accounts, update_account)
    table.edge("GET", "phone_numbers", list_numbers)
    table.edge("POST", "phone_numbers", create_number)
    table.edge("GET", "subscribed_apps", get_subscribed_apps)
    table.edge("POST", "subscribed_apps", subscribe)
    table.edge("DELETE", "subscribed_apps", unsubscribe)
