"""Payments by customers in India: an account's payment configurations, the status of a payment, and refunds (KAPSO,
"Payments API India"). Simulated customers never pay, so every payment is pending.
"""

import time

from simulator.errors import GraphError, invalid_parameter
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.schema import Row, coerced, read_fields
from simulator.world.identifiers import new_id

_GATEWAYS = frozenset({"billdesk", "payu", "razorpay", "upi_vpa", "zaakpay"})
_OAUTH_SECONDS = 3600


async def list_configurations(call: Call) -> Row:
    """GET /{waba}/payment_configurations: list all configurations, in one row."""
    return {"data": [{"payment_configurations": list(_configurations(call).values())}]}


async def get_configuration(call: Call) -> Row:
    """GET /{waba}/payment_configuration/{name}: read one configuration."""
    return {"data": [_configuration(call, _name_in(call))]}


async def create_configuration(call: Call) -> Row:
    """POST /{waba}/payment_configuration: create a configuration. UPI is connected at once. For a payment gateway, the
    answer has a link to connect the gateway.
    """
    rows, params = _configurations(call), call.params()
    name, provider = text_of(params, "configuration_name"), text_of(params, "provider_name").lower()
    if provider not in _GATEWAYS:
        raise invalid_parameter(f"Param provider_name must be one of {{{', '.join(sorted(_GATEWAYS))}}}")
    now = int(time.time())
    row: Row = {
        "configuration_name": name,
        "merchant_category_code": {"code": text_of(params, "merchant_category_code"), "description": "Test"},
        "purpose_code": {"code": text_of(params, "purpose_code"), "description": "Test"},
        "status": "Active",
        "created_timestamp": now,
        "updated_timestamp": now,
    }
    if provider == "upi_vpa":
        rows[name] = {**row, "merchant_vpa": text_of(params, "merchant_vpa")}
        call.sim.state.changed()
        return {"success": True}
    rows[name] = {**row, "status": "Needs_Connecting", "provider_name": provider}
    call.sim.state.changed()
    return {**_oauth_link(), "success": True}


async def change_configuration(call: Call) -> Row:
    """POST /{waba}/payment_configuration/{name}: set the URL that a checkout calls."""
    row = _configuration(call, _name_in(call))
    row.update(read_fields(call.params(), {"data_endpoint_url": "text"}, ()))
    row["updated_timestamp"] = int(time.time())
    call.sim.state.changed()
    return {"success": True}


async def delete_configuration(call: Call) -> Row:
    """DELETE /{waba}/payment_configuration: delete a configuration."""
    row = _configuration(call, text_of(call.params(), "configuration_name"))
    del _configurations(call)[row["configuration_name"]]
    call.sim.state.changed()
    return {"success": True}


async def link_configuration(call: Call) -> Row:
    """POST /{waba}/generate_payment_configuration_oauth_link: create a new link to connect a payment gateway."""
    _configuration(call, text_of(call.params(), "configuration_name"))
    return _oauth_link()


async def get_payment(call: Call) -> Row:
    """GET /{number}/payments/{configuration}/{reference}: read the status of a payment."""
    _, configuration, reference = (*call.edge.split("/", 2), "", "")[:3]
    account = call.number().waba_id
    if not reference or configuration not in call.sim.state.objects.get(
        f"{account}/payment_configuration", {}
    ):
        raise GraphError(100, f"There is no payment {reference} of {configuration}.", subcode=33)
    amount = {"value": 100, "offset": 100}
    payment = {"reference_id": reference, "status": "pending", "currency": "INR", "total_amount": amount}
    return {"payments": [{**payment, "transactions": []}]}


async def refund(call: Call) -> Row:
    """POST /{number}/payments_refund: refund a payment."""
    call.number()
    params = call.params()
    text_of(params, "reference_id")
    text_of(params, "payment_config_id")
    amount = coerced("object", "amount", params.get("amount"))
    if amount.get("currency") != "INR" or str(amount.get("offset")) != "100":
        raise invalid_parameter("Param amount must be of INR with the offset 100")
    if coerced("number", "amount.value", amount.get("value")) < 1:
        raise invalid_parameter("Param amount must be positive")
    return {"id": new_id("9"), "status": "pending", "speed_processed": str(params.get("speed", "normal"))}


def _configurations(call: Call) -> dict[str, Row]:
    return call.sim.state.objects.setdefault(f"{call.account().waba_id}/payment_configuration", {})


def _configuration(call: Call, name: str) -> Row:
    row = _configurations(call).get(name)
    if row is None:
        raise GraphError(100, f"There is no payment configuration {name}.", subcode=33)
    return row


def _name_in(call: Call) -> str:
    return call.edge.partition("/")[2]


def _oauth_link() -> Row:
    link = "https://www.facebook.com/payment/onboarding/init/"
    return {"oauth_url": link, "expiration": int(time.time()) + _OAUTH_SECONDS}


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("GET", "payment_configurations", list_configurations)
    table.edge("GET", "payment_configuration/*", get_configuration)
    table.edge("POST", "payment_configuration", create_configuration)
    table.edge("POST", "payment_configuration/*", change_configuration)
    table.edge("DELETE", "payment_configuration", delete_configuration)
    table.edge("POST", "generate_payment_configuration_oauth_link", link_configuration)
    table.edge("GET", "payments/*", get_payment)
    table.edge("POST", "payments_refund", refund)
