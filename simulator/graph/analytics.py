"""Analytics of an account, summed from the numbers' messages in memory (KAPSO, "Analytics")."""

import re
from typing import Any

from simulator.errors import invalid_parameter
from simulator.graph.dispatch import Call, Table
from simulator.graph.fields import ARGUMENT
from simulator.graph.schema import coerced
from simulator.graph.templates import template_of
from simulator.world.records import Account, Message

FIELDS = ("analytics", "call_analytics", "conversation_analytics", "pricing_analytics")
_DAY = 86_400


def account_fields(call: Call, account: Account) -> dict[str, Any]:
    """The analytics requested in the `fields` of an account, such as `analytics.start(1).end(2).granularity(DAY)`."""
    text = str(call.params().get("fields") or "")
    found: dict[str, Any] = dict.fromkeys(FIELDS)
    for name in FIELDS:
        asked = re.search(rf"(?<![\w_]){name}((?:\.\w+\([^()]*\))*)", text)
        if asked is None:
            continue
        arguments = dict(ARGUMENT.findall(asked[1]))
        points = _points(_by_day(call, account, *_range(arguments)), name)
        if name == "analytics":
            numbers = [call.sim.state.numbers[number].digits for number in account.numbers]
            granularity = arguments.get("granularity", "DAY")
            found[name] = {"phone_numbers": numbers, "granularity": granularity, "data_points": points}
        else:
            found[name] = {"data": [{"data_points": points}]}
    return found


def _range(arguments: dict[str, Any]) -> tuple[int, int]:
    for name in ("start", "end"):
        if name not in arguments:
            raise invalid_parameter(f"The parameter {name} is required.")
    start, end = (coerced("number", name, arguments[name]) for name in ("start", "end"))
    if not 0 <= start < end or end - start > 366 * _DAY:
        raise invalid_parameter("Param end must be after start, at most a year")
    return start, end


def _by_day(call: Call, account: Account, start: int, end: int) -> dict[int, list[Message]]:
    """The messages that the account's numbers sent, grouped by day. The keys are the start times of the days of a
    range.
    """
    days: dict[int, list[Message]] = {at: [] for at in range(start - start % _DAY, end, _DAY)}
    for number in account.numbers:
        for message in call.sim.state.messages.newest_first(number):
            at = int(message.timestamp) // _DAY * _DAY
            if message.direction == "outbound" and at in days:
                days[at].append(message)
    return days


def _counts(sent: list[Message]) -> dict[str, int]:
    delivered = sum(message.status in {"delivered", "read"} for message in sent)
    return {
        "sent": len(sent),
        "delivered": delivered,
        "read": sum(message.status == "read" for message in sent),
    }


def _points(days: dict[int, list[Message]], name: str) -> list[dict[str, Any]]:
    """The data points of a field.

    `analytics` has a point for every day. `pricing_analytics` and `conversation_analytics` have points only for days
    with messages. `call_analytics` has none.
    """
    points = []
    for start, sent in days.items():
        point: dict[str, Any] = {"start": start, "end": start + _DAY}
        counts = _counts(sent)
        if name == "analytics":
            points.append({**point, "sent": counts["sent"], "delivered": counts["delivered"]})
        elif name == "call_analytics":
            continue
        elif sent and name == "pricing_analytics":
            points.append({**point, "volume": counts["delivered"], "cost": 0.0})
        elif sent:
            points.append({**point, "conversation": len({message.customer for message in sent}), "cost": 0.0})
    return points


def _template_name(message: Message) -> str | None:
    return (message.body.get("template") or {}).get("name")


async def template_analytics(call: Call) -> dict[str, Any]:
    """GET /{waba}/template_analytics: counts of sent, delivered and read messages by template and day."""
    account, params = call.account(), call.params()
    days = _by_day(call, account, *_range(params))
    asked = [each.strip() for each in coerced("texts", "template_ids", params.get("template_ids", []))]
    own = [call.sim.state.templates[each] for each in asked if each in call.sim.state.templates]
    points = [
        {
            "template_id": template.id,
            "start": at,
            "end": at + _DAY,
            **_counts([message for message in sent if _template_name(message) == template.name]),
            "clicked": [],
        }
        for at, sent in days.items()
        for template in own
        if template.waba_id == account.waba_id
    ]
    row = {"granularity": "DAILY", "product_type": "cloud_api", "data_points": points}
    return {"data": [row], "paging": {"cursors": {"before": "MAZDZD", "after": "MAZDZD"}}}


async def template_group_analytics(call: Call) -> dict[str, Any]:
    """GET /{waba}/template_group_analytics: the counts of `template_analytics`, summed for a template group."""
    account, params = call.account(), call.params()
    days = _by_day(call, account, *_range(params))
    groups = call.sim.state.objects.get(f"{account.waba_id}/template_groups", {})
    points = []
    for asked in coerced("texts", "template_group_ids", params.get("template_group_ids")):
        ids = groups.get(asked.strip(), {}).get("whatsapp_business_templates", [])
        names = {call.sim.state.templates[each].name for each in ids if each in call.sim.state.templates}
        for at, sent in days.items():
            counts = _counts([message for message in sent if _template_name(message) in names])
            points.append({"template_group_id": asked.strip(), "start": at, "end": at + _DAY, **counts})
    return {"data": [{"granularity": "DAILY", "data_points": points}]}


async def group_analytics(call: Call) -> dict[str, Any]:
    """GET /{waba}/group_analytics: counts of the messages sent to groups, by day."""
    account, params = call.account(), call.params()
    days = _by_day(call, account, *_range(params))
    points = [
        {"group_id": asked.strip(), "start": at, "end": at + _DAY, **_counts(to_group)}
        for asked in coerced("texts", "group_ids", params.get("group_ids"))
        for at, sent in days.items()
        for to_group in [[message for message in sent if message.customer == asked.strip()]]
    ]
    return {"data": [{"granularity": "DAILY", "data_points": points}]}


async def compare_templates(call: Call) -> dict[str, Any]:
    """GET /{template}/compare: compare a template with another template of the account."""
    template, params = template_of(call), call.params()
    days = _by_day(call, call.sim.state.accounts[template.waba_id], *_range(params))
    others = [each.strip() for each in coerced("texts", "template_ids", params.get("template_ids"))]
    names = {
        each.id: each.name for each in call.sim.state.templates.values() if each.waba_id == template.waba_id
    }
    if not others or not names.keys() >= set(others):
        raise invalid_parameter("Param template_ids must name templates of the same account")
    ids = [template.id, *others]
    sent = [_template_name(message) for messages in days.values() for message in messages]
    return {
        "data": [
            {"metric": "BLOCK_RATE", "type": "RELATIVE", "order_by_relative_metric": ids},
            {
                "metric": "MESSAGE_SENDS",
                "type": "NUMBER_VALUES",
                "number_values": [{"key": each, "value": sent.count(names[each])} for each in ids],
            },
            {
                "metric": "TOP_BLOCK_REASON",
                "type": "STRING_VALUES",
                "string_values": [{"key": each, "value": "UNKNOWN_BLOCK_REASON"} for each in ids],
            },
        ]
    }


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("GET", "template_analytics", template_analytics)
    table.edge("GET", "template_group_analytics", template_group_analytics)
    table.edge("GET", "group_analytics", group_analytics)
    table.edge("GET", "compare", compare_templates)
