"""Faults of the Graph API on demand. `PUT /sim/faults` sets the rules. The first rule that matches a call acts.

A rule has `match` (all members must fit), `action`, and optionally `when`, `times` and `probability`. With `when`
"before" (the default) the rule acts before the call is handled. With "after" the call takes effect and only its
answer is lost.
"""

import asyncio
import random
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from simulator.errors import GraphError, trace_id

ACTIONS = ("hang", "reset", "html", "error", "slow", "throttle")
MATCHES = ("path", "method", "phone_number_id", "to", "template")
_HANG_SECONDS = 120.0


@dataclass(slots=True)
class Rule:
    """One fault rule. `used` counts how often the rule acted."""

    action: str
    match: dict[str, str] = field(default_factory=dict)
    when: str = "before"
    ms: int = 0
    status: int | None = None
    code: int = 131000
    times: int | None = None
    probability: float = 1.0
    used: int = 0

    @classmethod
    def parse(cls, source: Mapping[str, Any]) -> "Rule":
        """Parse a rule from JSON. Raises `ValueError` with the reason."""
        unknown = set(source) - {"action", "match", "when", "ms", "status", "code", "times", "probability"}
        if unknown:
            raise ValueError(f"unknown members {sorted(unknown)}")
        if source.get("action") not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}")
        match = dict(source.get("match") or {})
        if set(match) - set(MATCHES):
            raise ValueError(f"match may hold {', '.join(MATCHES)}")
        if source.get("when", "before") not in {"before", "after"}:
            raise ValueError("when is before or after")
        re.compile(match.get("path", ""))
        return cls(**{**source, "match": {name: str(value) for name, value in match.items()}})

    def fits(self, method: str, path: str, node: str, body: Mapping[str, Any]) -> bool:
        """Whether the rule matches this call and acts this time."""
        if self.times is not None and self.used >= self.times:
            return False
        match = self.match
        if "path" in match and not re.search(match["path"], path):
            return False
        if "method" in match and match["method"].upper() != method:
            return False
        if "phone_number_id" in match and match["phone_number_id"] != node:
            return False
        if "to" in match and match["to"].lstrip("+") != str(body.get("to", body.get("recipient", ""))).lstrip(
            "+"
        ):
            return False
        if "template" in match:
            template = body.get("template")
            if not isinstance(template, Mapping) or template.get("name") != match["template"]:
                return False
        return random.random() < self.probability

    def view(self) -> dict[str, Any]:
        """The rule as JSON."""
        return {
            "action": self.action,
            "match": self.match,
            "when": self.when,
            "ms": self.ms,
            "status": self.status,
            "code": self.code,
            "times": self.times,
            "probability": self.probability,
            "used": self.used,
        }


async def act(rule: Rule, request: web.BaseRequest) -> web.StreamResponse | None:
    """Carry out the fault. Returns an answer to send instead, or None to continue. Raises `GraphError` for error
    actions.
    """
    rule.used += 1
    match rule.action:
        case "slow":
            await asyncio.sleep(rule.ms / 1000)
            return None
        case "throttle":
            raise GraphError(130429, status=rule.status)
        case "error":
            raise GraphError(rule.code, status=rule.status)
        case "html":
            return web.Response(
                status=rule.status or 502,
                content_type="text/html",
                text="<!DOCTYPE html><html><head><title>Error</title></head><body>"
                f"<h1>Sorry, something went wrong.</h1><p>{trace_id()}</p></body></html>",
            )
        case "hang":
            await hang(request, rule.ms / 1000 if rule.ms else _HANG_SECONDS)
        case _:
            reset(request)
    return web.Response(status=499)


async def hang(request: web.BaseRequest, seconds: float) -> None:
    """Give no answer until the time is up or the client disconnects. Then drop the connection."""
    end = asyncio.get_running_loop().time() + seconds
    while request.transport is not None and not request.transport.is_closing():
        left = end - asyncio.get_running_loop().time()
        if left <= 0:
            break
        await asyncio.sleep(min(left, 0.25))
    reset(request)


def reset(request: web.BaseRequest) -> None:
    """Reset the TCP connection, as a crashing peer does."""
    transport = request.transport
    if transport is None:
        return
    peer: socket.socket | None = transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
