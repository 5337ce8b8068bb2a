"""`whabuzz logs tail` prints every call once, whenever it was logged, and not its own polls."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.command_line.conftest import BASE_URL, CommandLine

KEY = "wb_test_" + "a" * 40
POLL = {"route": "/v1/requests", "key_prefix": KEY[:16]}


class Log(httpx.BaseTransport):
    """A service whose request log has a call for each poll. The search has pages and the filter by status."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.polls: list[httpx.QueryParams] = []

    def add(self, second: float, **members: Any) -> None:
        """Log a call that began in this second of the day."""
        moment = f"2026-11-22T{int(second // 3600):02}:{int(second // 60 % 60):02}:{second % 60:06.3f}Z"
        call = {"id": f"req_{round(second * 1000):026d}", "created_at": moment, "method": "POST"}
        call |= {"route": "/v1/messages", "status": 200, "error_code": None, "key_prefix": "wb_test_other"}
        self.calls.append({**call, "service_ms": 1.9, **members})
        self.calls.sort(key=lambda each: str(each["id"]), reverse=True)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        self.polls.append(asked)
        first = int(asked.get("cursor", 0))
        found = [each for each in self.calls if f"{each['status'] // 100}xx" == asked.get("status", "2xx")]
        found = found if "status" in asked else self.calls
        end = first + int(asked["limit"])
        page = {"data": found[first:end], "next_cursor": str(end) if end < len(found) else None}
        self.add(1_000 + len(self.polls), method="GET", **POLL)
        return httpx.Response(200, json=page)


@pytest.fixture
def tail(stranger: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Print the routes and statuses that the command prints, until it has slept as often as there are `steps`."""
    monkeypatch.setenv("WHABUZZ_API_KEY", KEY)
    monkeypatch.setenv("WHABUZZ_BASE_URL", BASE_URL)

    def run(log: Log, *arguments: str, steps: tuple[Callable[[], None], ...] = ()) -> list[str]:
        whabuzz, left = CommandLine(stranger.home, log), list(steps)

        def sleep(_: float) -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        whabuzz.sleep = sleep  # type: ignore[method-assign]
        done = whabuzz("logs", "tail", *arguments, "--json")
        assert done.status == 0, done.stderr
        return [f"{line['route']} {line['status']}" for line in done.lines]

    return run


Tail = Callable[..., list[str]]


def test_a_slow_call_is_printed_when_it_is_logged_and_no_poll_is(tail: Tail) -> None:
    log = Log()
    log.add(900, route="/v1/before")
    log.add(999, route="/v1/last")
    seen = tail(
        log,
        "--limit",
        "1",
        steps=(
            lambda: log.add(1_002.5, route="/v1/quick"),
            lambda: log.add(990, route="/v1/slow", status=502),
            lambda: log.add(1_005.5, **{**POLL, "key_prefix": "wb_test_other"}),
            lambda: None,
        ),
    )
    assert seen == ["/v1/last 200", "/v1/quick 200", "/v1/slow 502", "/v1/requests 200"]


def test_errors_are_as_many_as_the_limit_says(tail: Tail) -> None:
    log = Log()
    for second in range(300):
        log.add(second, status={0: 404, 1: 500, 2: 400}.get(second, 200), route=f"/v1/{second}")
    assert tail(log, "--errors", "--no-follow") == ["/v1/0 404", "/v1/1 500", "/v1/2 400"]
    assert tail(log, "--errors", "--no-follow", "--limit", "2") == ["/v1/1 500", "/v1/2 400"]
    seen = tail(
        log,
        "--errors",
        "--limit",
        "1",
        steps=(lambda: log.add(2_000, route="/v1/fine"), lambda: log.add(2_001, status=429)),
    )
    assert seen == ["/v1/2 400", "/v1/messages 429"]


def test_a_poll_reads_only_the_last_minute(tail: Tail) -> None:
    log = Log()
    for second in range(900):
        log.add(second)
    log.add(1_000)
    tail(log, "--limit", "1", steps=(lambda: None,) * 3)
    assert all("cursor" not in asked for asked in log.polls)
