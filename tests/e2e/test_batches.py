"""The commands of docs/batches.md, in order, with the running service."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Stack, messages, until
from tests.e2e.reading import Reader
from tests.pages import blocks

pytestmark = pytest.mark.e2e

PAGE = "docs/batches.md"


def completed(stack: Stack, batch_id: str) -> dict[str, Any]:
    """Wait until the batch has ended, and return it."""

    def look() -> dict[str, Any] | None:
        batch: dict[str, Any] = stack.api("GET", f"/v1/messages/batch/{batch_id}").json()
        return batch if batch["completed_at"] else None

    return until(look, "the end of the batch", seconds=60)


def test_a_batch_as_documented(stack: Stack, tmp_path: Path) -> None:
    shown_at_creation, shown_at_the_end, shown_items = map(json.loads, blocks(PAGE, "json"))
    reader = Reader(PAGE, stack, tmp_path)
    again = reader.commands[0]
    made = reader.run('"may-newsletter"')
    assert list(made) == list(shown_at_creation)
    same = ("status", "total", "accepted", "failed", "rate_per_sec", "client_ref", "started_at")
    assert [made[name] for name in same] == [shown_at_creation[name] for name in same]
    reader.environment["BATCH"] = made["id"]
    completed(stack, made["id"])

    reader.commands.insert(0, again)
    assert reader.run('"may-newsletter"')["id"] == made["id"], "a client_ref that was seen before"
    ended = reader.run("/batch/$BATCH")
    assert list(ended) == list(shown_at_the_end)
    counts = ("status", "total", "accepted", "failed")
    assert [ended[name] for name in counts] == [shown_at_the_end[name] for name in counts]

    listed = reader.run("client_ref=may-newsletter")
    assert [batch["id"] for batch in listed["data"]] == [made["id"]]

    page = reader.run("items?limit=2")
    assert [item["idx"] for item in page["data"]] == [0, 1]
    assert page["next_cursor"]
    failed = reader.run("status=failed")
    [item], [shown] = failed["data"], shown_items["data"]
    assert list(item) == list(shown)
    assert [item[name] for name in ("idx", "http_status", "wamid")] == [2, 400, None]
    assert item["response"]["error"]["message"] == shown["response"]["error"]["message"]

    body = {"from": stack.ready["phone_number_id"], "messages": messages(2000)}
    long = stack.api("POST", "/v1/messages/batch", body).json()
    reader.environment["BATCH"] = long["id"]
    cancel = reader.commands[0]
    assert reader.run("/cancel")["status"] == "cancelled"
    completed(stack, long["id"])
    assert stack.api("GET", f"/v1/messages/batch/{long['id']}/items?status=skipped").json()["data"]
    reader.commands.append(cancel)
    refused = reader.answer("/cancel")["error"]
    assert (refused["code"], refused["details"]) == ("conflict", {"status": "cancelled"})
    assert reader.commands == []


def test_a_schedule_as_documented(stack: Stack, tmp_path: Path) -> None:
    page = "docs/scheduling.md"
    (shown,) = map(json.loads, blocks(page, "json"))
    reader = Reader(page, stack, tmp_path)
    made = reader.run("visit-1042")
    assert list(made) == list(shown)
    assert made["status"] == "scheduled"
    assert made in reader.run("?status=scheduled")["data"], "the run that is shared has others' too"
    reader.environment["SCHEDULED"] = made["id"]
    assert reader.run("/$SCHEDULED") == made
    assert reader.run("PATCH")["send_at"] > made["send_at"]
    assert reader.run("/cancel")["status"] == "cancelled"
    by_day = reader.run("customer_hours")
    assert by_day["customer_hours"] == {"from": 9, "to": 20}
    batch = reader.run("/batch")
    assert batch["waiting_for"] == "scheduled"
    reader.environment["BATCH"] = batch["id"]
    assert reader.run("PATCH")["send_at"] > batch["send_at"]
    assert reader.run("/cancel")["status"] == "cancelled"
    assert reader.commands == []
