"""A number's business profile and its other settings (upstream fact 1.7)."""

from typing import Any

from simulator.errors import invalid_parameter
from simulator.graph.dispatch import CREDENTIALS, Call, Table
from simulator.graph.fields import parse_fields
from simulator.graph.schema import coerced

_PROFILE_LIMITS = {"about": 139, "address": 256, "description": 512, "email": 128}
_VERTICALS = frozenset(
    [
        "UNDEFINED",
        "OTHER",
        "AUTO",
        "BEAUTY",
        "APPAREL",
        "EDU",
        "ENTERTAIN",
        "EVENT_PLAN",
        "FINANCE",
        "GROCERY",
        "GOVT",
        "HOTEL",
        "HEALTH",
        "NONPROFIT",
        "PROF_SERVICES",
        "RETAIL",
        "TRAVEL",
        "RESTAURANT",
        "NOT_A_BIZ",
        "ALCOHOL",
        "ONLINE_GAMBLING",
        "PHYSICAL_GAMBLING",
        "OTC_DRUGS",
        "MATRIMONY_SERVICE",
    ]
)


async def get_profile(call: Call) -> dict[str, Any]:
    """GET /{number}/whatsapp_business_profile: read the profile. Fields without a value are absent."""
    number = call.number()
    profile = {"messaging_product": "whatsapp", "vertical": "UNDEFINED", **number.profile}
    asked = parse_fields(call.request.query.get("fields", ""))
    known = {*_PROFILE_LIMITS, "messaging_product", "profile_picture_url", "websites", "vertical"}
    for name in asked:
        if name not in known:
            raise invalid_parameter(f"Tried accessing nonexisting field ({name})")
    shown = {k: v for k, v in profile.items() if not asked or k in asked or k == "messaging_product"}
    return {"data": [shown]}


async def set_profile(call: Call) -> dict[str, Any]:
    """POST /{number}/whatsapp_business_profile: change the profile."""
    number = call.number()
    params = call.params()
    if params.get("messaging_product") != "whatsapp":
        raise invalid_parameter("The parameter messaging_product is required.")
    changes: dict[str, Any] = {}
    for name, limit in _PROFILE_LIMITS.items():
        if name in params:
            value = params[name]
            if not isinstance(value, str) or len(value) > limit or (name == "about" and not value):
                raise invalid_parameter(f"Param {name} must be a string of at most {limit} characters")
            changes[name] = value
    if "websites" in params:
        sites = coerced("texts", "websites", params["websites"])
        if not isinstance(sites, list) or len(sites) > 2:
            raise invalid_parameter("Param websites must be a list of at most 2 addresses")
        if not all(isinstance(site, str) and site.startswith(("https://", "http://")) for site in sites):
            raise invalid_parameter("Param websites must hold addresses with http:// or https://")
        changes["websites"] = sites
    if "vertical" in params:
        if params["vertical"] not in _VERTICALS:
            raise invalid_parameter(f"Param vertical must be one of {{{', '.join(sorted(_VERTICALS))}}}")
        changes["vertical"] = params["vertical"]
    if "profile_picture_handle" in params:
        upload = call.sim.state.handles.get(str(params["profile_picture_handle"]).strip())
        if upload is None:
            raise invalid_parameter("Param profile_picture_handle is not a valid handle")
        changes["profile_picture_url"] = f"{call.sim.config.base_url}/sim/uploads/{upload.key}"
    number.profile = {
        name: value for name, value in {**number.profile, **changes}.items() if value not in ("", [])
    }
    call.sim.state.changed()
    return {"success": True}


async def settings(call: Call) -> dict[str, Any]:
    """GET and POST /{number}/settings: read or set calling, identity and storage settings, which are stored as sent."""
    number = call.number()
    if call.request.method == "GET":
        return number.settings
    given = {name: value for name, value in call.params().items() if name not in CREDENTIALS}
    number.settings = {**number.settings, **given}
    call.sim.state.changed()
    return {"success": True}


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("GET", "whatsapp_business_profile", get_profile)
    table.edge("POST", "whatsapp_business_profile", set_profile)
    table.edge("GET", "settings", settings)
    table.edge("POST", "settings", settings)
