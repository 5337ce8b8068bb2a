"""Seeding: the control routes that create and change accounts, numbers, codes and tokens (`docs/simulator.md`)."""

from dataclasses import asdict
from typing import Any

from aiohttp import web

from simulator.control import number_events
from simulator.control.views import answer, read, refusals
from simulator.parts import SIMULATOR, Simulator
from simulator.world.identifiers import digits_of
from simulator.world.records import HEALTH_ENTITIES, HEALTH_STATES, Account, Number, Token
from simulator.world.state import CODE_SECONDS

_NUMBER_CHANGES = {
    "verified_name": str,
    "quality_rating": str,
    "messaging_limit_tier": str,
    "throughput": str,
    "name_status": str,
    "code_verification_status": str,
    "platform_type": str,
    "status": str,
    "account_mode": str,
    "is_on_biz_app": bool,
    "is_official_business_account": bool,
    "locked_elsewhere": bool,
    "pin": (str, type(None)),
    "allowed_recipients": (list, type(None)),
}
_ACCOUNT_CHANGES = {
    "name": str,
    "currency": str,
    "country": str,
    "account_review_status": str,
    "status": str,
    "subscribed": bool,
    "locked": bool,
    "health": dict,
}
_PLAIN_MEMBERS = frozenset(
    """throughput quality_rating messaging_limit_tier name_status account_mode pin locked_elsewhere
    allowed_recipients""".split()  # noqa: SIM905
)
_NUMBER_MEMBERS = _PLAIN_MEMBERS | {
    "id",
    "phone_number_id",
    "display_phone_number",
    "verified_name",
    "coexistence",
    "registered",
}


def number_view(number: Number) -> dict[str, Any]:
    """A number with all of its simulated data, including the verification code."""
    return asdict(number)


def account_view(sim: Simulator, account: Account) -> dict[str, Any]:
    """An account with its numbers, templates and tokens."""
    state = sim.state
    tokens = [
        token for token in state.tokens.values() if token.waba_ids and account.waba_id in token.waba_ids
    ]
    return {
        **asdict(account),
        "phone_numbers": [number_view(state.numbers[number_id]) for number_id in account.numbers],
        "templates": [asdict(t) for t in state.templates.values() if t.waba_id == account.waba_id],
        "access_tokens": [token.value for token in tokens],
    }


async def create_account(request: web.Request) -> web.Response:
    """POST /sim/accounts: create an account. For a known `waba_id`, add missing numbers and tokens to it."""
    sim = request.app[SIMULATOR]
    body = await read(request)
    account = sim.state.accounts.get(str(body.get("waba_id", "")))
    known = account is not None
    if account is None:
        account = sim.state.create_account(
            name=str(body.get("name") or f"Business {len(sim.state.accounts) + 1}"),
            waba_id=str(body["waba_id"]) if body.get("waba_id") else None,
            business_id=str(body["business_id"]) if body.get("business_id") else None,
        )
    if "subscribed" in body:
        account.subscribed = bool(body["subscribed"])
    wanted = body.get("numbers", 0 if known else 1)
    if isinstance(wanted, int):
        wanted = [{} for _ in range(wanted - len(account.numbers))]
    for row in wanted:
        add_number(sim, account, row)
    token = _token_of(sim, account, str(body.get("variant", "default")), body.get("access_token"))
    code = sim.state.issue_code(account.waba_id, variant=str(body.get("variant", "default")))
    numbers = [sim.state.numbers[number_id] for number_id in account.numbers]
    sim.state.changed()
    return answer(
        {
            "waba_id": account.waba_id,
            "business_id": account.business_id,
            "phone_numbers": [{"id": n.id, "display_phone_number": n.display_phone_number} for n in numbers],
            "access_token": token.value,
            "code": code.value,
        },
        status=200 if known else 201,
    )


def add_number(sim: Simulator, account: Account, row: dict[str, Any]) -> Number:
    """Add a number as described, or return the existing number with the same id or digits. Raises `ValueError`."""
    unknown = set(row) - _NUMBER_MEMBERS
    if unknown:
        raise ValueError(f"unknown members of a number: {sorted(unknown)}")
    wanted = row.get("phone_number_id") or row.get("id")
    digits = digits_of(str(row.get("display_phone_number") or "")) or None
    found = sim.state.numbers.get(str(wanted)) if wanted else None
    if found is None and digits:
        found = sim.state.number_by_digits(digits, waba_id=account.waba_id)
    if found is not None:
        if found.waba_id != account.waba_id:
            raise ValueError(f"number {found.id} belongs to account {found.waba_id}")
        return found
    values = {name: row[name] for name in _PLAIN_MEMBERS if name in row}
    return sim.state.create_number(
        account,
        digits=digits,
        phone_number_id=str(wanted) if wanted else None,
        verified_name=row.get("verified_name"),
        registered=bool(row.get("registered", True)),
        is_on_biz_app=bool(row.get("coexistence", False)),
        **values,
    )


def _token_of(sim: Simulator, account: Account, variant: str, value: Any) -> Token:
    if value is not None and str(value) in sim.state.tokens:
        return sim.state.tokens[str(value)]
    if value is None and variant == "default":
        for token in sim.state.tokens.values():
            if token.waba_ids == [account.waba_id] and not token.invalidated and not token.expires_at:
                return token
    return sim.state.issue_token([account.waba_id], variant=variant, value=str(value) if value else None)


async def list_accounts(request: web.Request) -> web.Response:
    """GET /sim/accounts: list all accounts."""
    sim = request.app[SIMULATOR]
    return answer({"data": [account_view(sim, account) for account in sim.state.accounts.values()]})


async def get_account(request: web.Request) -> web.Response:
    """GET /sim/accounts/{waba_id}: show one account."""
    sim = request.app[SIMULATOR]
    return answer(account_view(sim, _account(sim, request.match_info["waba_id"])))


async def change_account(request: web.Request) -> web.Response:
    """PATCH /sim/accounts/{waba_id}: make a change that only Meta's staff or systems can make at Meta."""
    sim = request.app[SIMULATOR]
    account = _account(sim, request.match_info["waba_id"])
    changes = await read(request)
    _check_health(changes.get("health"))
    _change(account, changes, _ACCOUNT_CHANGES)
    sim.state.changed()
    return answer(account_view(sim, account))


async def add_account_number(request: web.Request) -> web.Response:
    """POST /sim/accounts/{waba_id}/phone_numbers: add a number."""
    sim = request.app[SIMULATOR]
    number = add_number(sim, _account(sim, request.match_info["waba_id"]), await read(request))
    return answer(number_view(number), status=201)


async def change_number(request: web.Request) -> web.Response:
    """PATCH /sim/phone_numbers/{id}: set quality, tier, throughput, status and similar fields."""
    sim = request.app[SIMULATOR]
    number = sim.state.numbers.get(request.match_info["phone_number_id"])
    if number is None:
        raise KeyError("such number")
    _change(number, await read(request), _NUMBER_CHANGES)
    sim.state.changed()
    return answer(number_view(number))


async def number_event(request: web.Request) -> web.Response:
    """POST /sim/phone_numbers/{id}/events {event}: apply and notify a decision of Meta about a number."""
    sim = request.app[SIMULATOR]
    number = sim.state.numbers.get(request.match_info["phone_number_id"])
    if number is None:
        raise KeyError("such number")
    number_events.decide(sim, number, str((await read(request)).get("event")))
    return answer(number_view(number))


def _account(sim: Simulator, waba_id: str) -> Account:
    account = sim.state.accounts.get(waba_id)
    if account is None:
        raise KeyError("such account")
    return account


def _change(record: Account | Number, changes: dict[str, Any], allowed: dict[str, Any]) -> None:
    for name, value in changes.items():
        if name not in allowed:
            raise ValueError(f"{name} cannot be changed; these can: {', '.join(allowed)}")
        if not isinstance(value, allowed[name]):
            raise ValueError(f"{name} has the wrong type")
    for name, value in changes.items():
        setattr(record, name, value)


def _check_health(health: Any) -> None:
    for entity, state in health.items() if isinstance(health, dict) else ():
        if entity not in HEALTH_ENTITIES or state not in HEALTH_STATES:
            raise ValueError(f"health has {HEALTH_ENTITIES}, each one of {HEALTH_STATES}")


async def create_code(request: web.Request) -> web.Response:
    """POST /sim/codes {waba_id, variant?, seconds?}: create an authorization code, valid for 30 s by default. With
    negative `seconds`, the code has already expired.
    """
    sim = request.app[SIMULATOR]
    body = await read(request)
    account = _account(sim, str(body.get("waba_id", "")))
    seconds = float(body.get("seconds", CODE_SECONDS))
    code = sim.state.issue_code(account.waba_id, variant=str(body.get("variant", "default")), seconds=seconds)
    return answer({"code": code.value, "expires_at": code.expires_at}, status=201)


async def create_token(request: web.Request) -> web.Response:
    """POST /sim/tokens {waba_id | waba_ids, variant?}: create an access token."""
    sim = request.app[SIMULATOR]
    body = await read(request)
    waba_ids = body.get("waba_ids") or [body.get("waba_id", "")]
    for waba_id in waba_ids:
        _account(sim, str(waba_id))
    token = sim.state.issue_token(
        [str(waba_id) for waba_id in waba_ids],
        variant=str(body.get("variant", "default")),
        value=body.get("access_token"),
    )
    return answer({"access_token": token.value}, status=201)


async def change_token(request: web.Request) -> web.Response:
    """PATCH /sim/tokens {access_token, invalidated?, expires_at?}: invalidate a token or set its expiry."""
    sim = request.app[SIMULATOR]
    body = await read(request)
    token = sim.state.tokens.get(str(body.get("access_token", "")))
    if token is None:
        raise KeyError("such token")
    token.invalidated = bool(body.get("invalidated", token.invalidated))
    token.expires_at = int(body.get("expires_at", token.expires_at))
    sim.state.changed()
    return answer({"invalidated": token.invalidated, "expires_at": token.expires_at})


def add_routes(app: web.Application) -> None:
    """Register these routes in the application."""
    for method, path, handler in (
        ("GET", "/sim/accounts", list_accounts),
        ("POST", "/sim/accounts", create_account),
        ("GET", "/sim/accounts/{waba_id}", get_account),
        ("PATCH", "/sim/accounts/{waba_id}", change_account),
        ("POST", "/sim/accounts/{waba_id}/phone_numbers", add_account_number),
        ("PATCH", "/sim/phone_numbers/{phone_number_id}", change_number),
        ("POST", "/sim/phone_numbers/{phone_number_id}/events", number_event),
        ("POST", "/sim/codes", create_code),
        ("POST", "/sim/tokens", create_token),
        ("PATCH", "/sim/tokens", change_token),
    ):
        app.router.add_route(method, path, refusals(handler))
