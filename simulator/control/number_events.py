"""Meta's decisions about a number, each with its notification (upstream fact 3.9)."""

from typing import Any

from simulator.parts import Simulator
from simulator.world.records import Number

TIERS = ("TIER_250", "TIER_2K", "TIER_10K", "TIER_100K", "TIER_UNLIMITED")
EVENTS = (
    "FLAGGED",
    "UNFLAGGED",
    "UPGRADE",
    "DOWNGRADE",
    "THROUGHPUT_UPGRADE",
    "NAME_APPROVED",
    "NAME_REJECTED",
    "PIN_CHANGED",
    "APP_REMOVED",
    "APP_RECONNECTED",
)
"""The last two events are for coexistence numbers: the business disconnects or reconnects the number in its app."""


def decide(sim: Simulator, number: Number, event: str) -> None:
    """Change the number according to the event, and send a notification. Raises `ValueError` for an unknown event."""
    if event not in EVENTS:
        raise ValueError(f"event is one of {', '.join(EVENTS)}")
    value: dict[str, Any] = {"display_phone_number": number.digits}
    if event in {"NAME_APPROVED", "NAME_REJECTED"}:
        field = "phone_number_name_update"
        number.name_status = "APPROVED" if event == "NAME_APPROVED" else "DECLINED"
        value |= {
            "decision": event.removeprefix("NAME_"),
            "requested_verified_name": number.verified_name,
            "rejection_reason": None if event == "NAME_APPROVED" else "NAME_NOT_CONSISTENT",
        }
    elif event in {"APP_REMOVED", "APP_RECONNECTED"}:
        field = "account_update"
        removed = event == "APP_REMOVED"
        if removed:
            number.synced.clear()
        value = {
            "phone_number": number.digits,
            "event": "PARTNER_REMOVED" if removed else "ACCOUNT_RECONNECTED",
        }
    elif event == "PIN_CHANGED":
        field = "security"
        value |= {"event": event}
    else:
        field = "phone_number_quality_update"
        before = number.messaging_limit_tier
        _change(number, event)
        # In this event, Meta's limit is that of the throughput.
        limit = "TIER_UNLIMITED" if event == "THROUGHPUT_UPGRADE" else number.messaging_limit_tier
        value |= {"event": event, "current_limit": limit}
        if before != number.messaging_limit_tier:
            value["old_limit"] = before
    sim.state.changed()
    if sim.state.accounts[number.waba_id].subscribed:
        sim.notifier.publish(waba_id=number.waba_id, field=field, value=value)


def _change(number: Number, event: str) -> None:
    place = TIERS.index(number.messaging_limit_tier) if number.messaging_limit_tier in TIERS else 0
    match event:
        case "FLAGGED":
            number.quality_rating = "RED"
        case "UNFLAGGED":
            number.quality_rating = "GREEN"
        case "UPGRADE":
            number.messaging_limit_tier = TIERS[min(place + 1, len(TIERS) - 1)]
        case "DOWNGRADE":
            number.messaging_limit_tier = TIERS[max(place - 1, 0)]
        case "THROUGHPUT_UPGRADE":
            number.throughput = "HIGH"
