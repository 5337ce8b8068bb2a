"""The control API under `/sim/…`: settings, faults, notifications, received requests (`docs/simulator.md`).

Tests, benchmarks and the sandbox control the simulator with this API. Errors are `{"error": reason}` with 400 or 404.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import orjson
from aiohttp import web

from simulator.faults import Rule
from simulator.notifier import wire_bytes
from simulator.parts import SIMULATOR

ControlHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(value: Any, *, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


async def read(request: web.Request) -> dict[str, Any]:
    """The JSON object in a request's body. An empty body gives an empty object. Raises `ValueError`."""
    body = await request.read()
    value = orjson.loads(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")
    return value


def refusals(handler: ControlHandler) -> ControlHandler:
    """Wrap a handler: its `ValueError` becomes a 400, and its `KeyError` (an object does not exist) a 404."""

    async def checked(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except KeyError as error:
            return answer({"error": f"there is no {error.args[0]}"}, status=404)
        except (ValueError, TypeError) as error:
            return answer({"error": str(error)}, status=400)

    return checked


def require_account(asked: Mapping[str, Any], waba_id: str, what: str) -> None:
    """Raise `KeyError` if the request names an account other than `waba_id`, the object's account."""
    if asked.get("waba_id") not in {None, waba_id}:
        raise KeyError(f"such {what}")


async def get_settings(request: web.Request) -> web.Response:
    """GET /sim/settings: show the settings."""
    return answer(request.app[SIMULATOR].settings.view())


async def put_settings(request: web.Request) -> web.Response:
    """PUT /sim/settings: change some settings. {"preset": "default" | "benchmark" | "instant", …} applies a preset."""
    sim = request.app[SIMULATOR]
    sim.configure(await read(request))
    return answer(sim.settings.view())


async def get_faults(request: web.Request) -> web.Response:
    """GET /sim/faults: list the rules, each with the number of times that it acted."""
    return answer({"rules": [rule.view() for rule in request.app[SIMULATOR].faults]})


async def put_faults(request: web.Request) -> web.Response:
    """PUT /sim/faults: replace all rules. The body is a list, or {"rules": [...]}."""
    sim = request.app[SIMULATOR]
    body = orjson.loads(await request.read() or b"[]")
    rows = body.get("rules", []) if isinstance(body, dict) else body
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("rules is a list of objects")
    rules = [Rule.parse(row) for row in rows]
    sim.faults[:] = rules
    return answer({"rules": [rule.view() for rule in rules]})


async def change_template(request: web.Request) -> web.Response:
    """POST /sim/templates/{id} with {event, reason?}, {quality}, {category} or {correct_category}: change a template
    and send the notification. With `waba_id`, templates of other accounts are not found.
    """
    sim = request.app[SIMULATOR]
    template = sim.state.templates.get(request.match_info["template_id"])
    if template is None:
        raise KeyError("such template")
    body = await read(request)
    require_account(body, template.waba_id, "template")
    if "event" in body:
        more = {name: body[name] for name in ("other_info", "disable_info", "rejection_info") if name in body}
        sim.reviews.decide(template, str(body["event"]), reason=str(body.get("reason", "NONE")), **more)
    elif "quality" in body:
        sim.reviews.set_quality(template, str(body["quality"]))
    elif "category" in body:
        sim.reviews.set_category(template, str(body["category"]))
    elif "correct_category" in body:
        sim.reviews.warn_of_category(template, str(body["correct_category"]))
    else:
        raise ValueError("event, quality, category or correct_category is required")
    return answer(asdict(template))


async def notify(request: web.Request) -> web.Response:
    """POST /sim/notify {waba_id, field, value, entry_id?, url?}, or {raw, url?} to sign and send exact bytes."""
    sim = request.app[SIMULATOR]
    body = await read(request)
    url = body.get("url")
    if "raw" in body:
        raw = body["raw"]
        content = raw.encode() if isinstance(raw, str) else wire_bytes(raw)
        sim.notifier.send(str(url or sim.notifier.callback_for("", "", {})), content)
    else:
        if not isinstance(body.get("value"), dict) or not body.get("field"):
            raise ValueError("field and value (an object) are required, or raw")
        waba_id = str(body.get("waba_id", ""))
        sim.notifier.publish(
            waba_id=waba_id,
            field=str(body["field"]),
            value=body["value"],
            entry_id=str(body["entry_id"]) if body.get("entry_id") else None,
            url=url,
        )
    return answer({"queued": True}, status=202)


async def get_requests(request: web.Request) -> web.Response:
    """GET /sim/requests?path=&method=&node=&contains=&since=&limit=: list the received requests, newest first."""
    sim = request.app[SIMULATOR]
    query = request.query
    since, limit = int(query.get("since", "0")), int(query.get("limit", "100"))
    contains = query.get("contains", "").encode()
    rows = (
        received
        for received in sim.requests.newest_first()
        if received.number > since
        and query.get("path", "") in received.path
        and query.get("method", received.method).upper() == received.method
        and query.get("node", received.node) == received.node
        and contains in received.body
    )
    shown = [received.view() for received in islice(rows, max(0, limit))]
    return answer({"total": sim.requests.total, "counts": sim.requests.counts, "data": shown})


async def reset(request: web.Request) -> web.Response:
    """POST /sim/reset: delete everything. {"keep": "accounts"} deletes only messages, requests, faults and the
    inboxes' content.
    """
    sim = request.app[SIMULATOR]
    body = await read(request)
    sim.reset(keep_accounts=body.get("keep") == "accounts")
    return answer({"reset": True})


async def health(request: web.Request) -> web.Response:
    """GET /sim/health: report that the simulator runs, with counts of its objects."""
    sim = request.app[SIMULATOR]
    state = sim.state
    return answer(
        {
            "ok": True,
            "accounts": len(state.accounts),
            "phone_numbers": len(state.numbers),
            "messages": len(state.messages),
            "requests": sim.requests.total,
            "notifications": {**sim.notifier.counters, **sim.notifier.backlog()},
            "callback_url": sim.notifier.callback_for("", "", {}),
        }
    )


def add_routes(app: web.Application) -> None:
    """Register the control API in the application."""
    for method, path, handler in (
        ("GET", "/sim/health", health),
        ("POST", "/sim/reset", reset),
        ("GET", "/sim/settings", get_settings),
        ("PUT", "/sim/settings", put_settings),
        ("GET", "/sim/faults", get_faults),
        ("PUT", "/sim/faults", put_faults),
        ("POST", "/sim/templates/{template_id}", change_template),
        ("POST", "/sim/notify", notify),
        ("GET", "/sim/requests", get_requests),
    ):
        app.router.add_route(method, path, refusals(handler))
