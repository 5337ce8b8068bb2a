"""The main flow over real HTTP: the printed curl, the phone page, the reply and the signed deliveries."""

import json
import shlex
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, expect
from standardwebhooks.webhooks import Webhook

from tests.e2e.conftest import Stack, messages, until

pytestmark = pytest.mark.e2e

CUSTOMER = "919812345678"


def printed_curl(stack: Stack) -> list[str]:
    command = stack.printed[stack.printed.index("curl ") :].replace("\\\n", " ")
    return shlex.split(command)


def inbox(stack: Stack) -> list[dict[str, Any]]:
    """The deliveries at the demo inbox, oldest first."""
    rows: list[dict[str, Any]] = stack.simulator("GET", "/sim/inboxes/demo?limit=500")["deliveries"]
    return [{**row, "envelope": json.loads(row["body"])} for row in rows[::-1]]


def test_the_printed_curl_sends_and_everything_comes_back_signed(stack: Stack, browser: Browser) -> None:
    done = subprocess.run(
        [*printed_curl(stack), "--silent", "--show-error"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert '"messaging_product":"whatsapp"' in done.stdout, done.stdout
    wamid = done.stdout.split('"id":"')[1].split('"')[0]

    def mine(event_type: str) -> list[dict[str, Any]]:
        rows = [row for row in inbox(stack) if row["event_type"] == event_type]
        return [row for row in rows if row["envelope"]["wamid"] == wamid or "☕" in row["body"]]

    page = browser.new_page()
    page.goto(f"{stack.ready['simulator_url']}/phone?phone_number_id={stack.ready['phone_number_id']}")
    page.locator("#chats").get_by_text("Hello").first.click()
    expect(page.get_by_role("log").get_by_text("Hello").first).to_be_visible()
    until(lambda: mine("message.status")[2:], "three statuses")
    box = page.get_by_label("Message", exact=True)
    box.fill("Thank you ☕ / <b>")
    box.press("Enter")
    until(lambda: mine("message.inbound"), "the answer")
    page.close()

    until(lambda: mine("message.outbound"), "the event of the send")
    (outbound,) = mine("message.outbound")
    statuses = mine("message.status")
    (inbound,) = mine("message.inbound")
    assert {row["signature"] for row in (outbound, inbound, *statuses)} == {"valid"}
    assert outbound["envelope"]["data"]["response"]["messages"][0]["id"] == wamid
    assert sorted(row["envelope"]["data"]["status"]["status"] for row in statuses) == [
        "delivered",
        "read",
        "sent",
    ]
    envelope = inbound["envelope"]
    assert envelope["data"]["message"]["text"]["body"] == "Thank you ☕ / <b>"
    assert envelope["tenant_id"] == stack.ready["tenant_id"]
    assert envelope["raw_path"] == "entry[0].changes[0].value.messages[0]"
    assert envelope["raw"]["entry"][0]["changes"][0]["value"]["messages"][0] == envelope["data"]["message"]


def test_a_second_receiver_verifies_with_the_public_library(stack: Stack) -> None:
    """After a rotation of an endpoint's secret, both secrets verify its deliveries."""
    url = f"{stack.ready['simulator_url']}/inbox/second"
    made = stack.api("POST", "/v1/webhooks", {"url": url, "event_types": ["message.outbound"]})
    assert made.status_code == 201, made.text
    rotated = stack.api("POST", f"/v1/webhooks/{made.json()['id']}/rotate-secret").json()
    sent = stack.api(
        "POST",
        "/v1/messages",
        {
            "from": stack.ready["phone_number_id"],
            "to": CUSTOMER,
            "type": "reaction",
            "reaction": {"message_id": "wamid.X", "emoji": "👍"},
        },
    )
    assert sent.status_code == 200, sent.text
    row = until(
        lambda: next(
            (
                row
                for row in stack.simulator("GET", "/sim/inboxes/second?limit=10")["deliveries"]
                if row["event_type"] == "message.outbound"
            ),
            None,
        ),
        "the delivery",
    )
    headers = {name.lower(): value for name, value in row["headers"].items()}
    for secret in (made.json()["secret"], rotated["secret"]):
        assert Webhook(secret).verify(row["body"], headers)["type"] == "message.outbound"
    assert stack.api("DELETE", f"/v1/webhooks/{made.json()['id']}").json()["deleted"] is True


def test_a_command_beside_the_run_reaches_its_servers(stack: Stack) -> None:
    app = stack.made("/v1/admin/apps", {"name": "Platform"}, key=stack.staff_token)
    key = stack.manage("create_key", "--app", app["id"], "--environment", "test")
    made = stack.api("POST", "/v1/tenants", {"name": "Shop"}, key=key)
    assert made.status_code == 201, made.text
    assert made.json()["sandbox"] is True
    apps = stack.api("GET", "/v1/admin/apps", key=stack.staff_token).json()["data"]
    assert {"id": app["id"], "name": "Platform", "tenants": 1} in apps


def test_the_demo_is_its_own_sandbox(stack: Stack) -> None:
    """`/v1/test/*` with the printed key creates no second account. With two accounts, template calls would have to name
    one of them.
    """
    written = stack.api("POST", "/v1/test/inbound", {"from": CUSTOMER, "text": "Hello"})
    assert written.status_code == 201, written.text
    assert written.json()["phone_number_id"] == stack.ready["phone_number_id"]


def test_every_printed_page_answers(stack: Stack) -> None:
    addresses = [word for word in stack.printed.split() if word.startswith("http") and "/v1" not in word]
    assert len(addresses) >= 5
    for address in addresses:
        assert requests.get(address, timeout=10).status_code == 200, address


def test_the_run_migrates_its_database(stack: Stack) -> None:
    """Also one that needs no migration, as the database of these tests."""
    assert "Running migrations:" in (stack.data_dir / "logs/migrate.log").read_text()


def deliveries(stack: Stack, *, until_id: str | None = None) -> dict[str, dict[str, Any]]:
    """The newest deliveries by id: one page, or all pages up to the one that contains `until_id`."""
    found: dict[str, dict[str, Any]] = {}
    path = "/v1/webhook-deliveries?limit=200"
    while True:
        page = stack.api("GET", path).json()
        found |= {row["id"]: row for row in page["data"]}
        if until_id is None or until_id in found or not page["next_cursor"]:
            return found
        path = f"/v1/webhook-deliveries?limit=200&cursor={page['next_cursor']}"


def test_a_second_start_keeps_the_data_and_continues_a_batch(stack: Stack) -> None:
    """After a Ctrl-C during a batch, messages that are being sent finish. Otherwise their items would be uncertain, and
    fail.
    """
    ready = stack.ready
    sent = stack.api(
        "POST",
        "/v1/messages",
        {"from": ready["phone_number_id"], "to": CUSTOMER, "type": "text", "text": {"body": "Stay"}},
    ).json()["messages"][0]["id"]
    until(
        lambda: [
            row
            for row in inbox(stack)
            if row["event_type"] == "message.status" and row["envelope"]["wamid"] == sent
        ][2:],
        "the statuses",
    )
    before = until(
        lambda: {key: row for key, row in deliveries(stack).items() if row["status"] == "delivered"},
        "the record of a delivery",
    )
    body = {"from": ready["phone_number_id"], "messages": messages(200)}
    path = f"/v1/messages/batch/{stack.api('POST', '/v1/messages/batch', body).json()['id']}"
    until(lambda: stack.api("GET", path).json()["accepted"], "the first messages of the batch")
    stack.stop()
    stopped_at = datetime.now(UTC)
    stack.start()
    assert stack.ready == ready
    after = deliveries(stack, until_id=min(before))
    assert {key: after.get(key) for key in before} == before
    number = stack.api("GET", f"/v1/numbers/{ready['phone_number_id']}").json()
    assert number["connection_state"] == "connected"

    def ended() -> Any:
        batch = stack.api("GET", path).json()
        return batch if batch["completed_at"] else None

    batch = until(ended, "the end of the batch", seconds=120)
    assert datetime.fromisoformat(batch["completed_at"]) > stopped_at
    assert (batch["accepted"], batch["failed"]) == (200, 0)


def test_what_whatsapp_refused_for_a_moment_goes_out_with_the_same_key(stack: Stack) -> None:
    """Repeats succeed after a rejected token and after maintenance of a number. A used code gets its own error."""
    number = f"/v1/numbers/{stack.ready['phone_number_id']}"
    waba_id = stack.api("GET", number).json()["waba_id"]
    tokens = stack.simulator("GET", f"/sim/accounts/{waba_id}")["access_tokens"]

    def withdraw(is_withdrawn: bool) -> None:
        for token in tokens:
            stack.simulator("PATCH", "/sim/tokens", {"access_token": token, "invalidated": is_withdrawn})

    def send(key: str) -> requests.Response:
        text = {"to": "+919812345699", "type": "text", "text": {"body": key}}
        sent = {"from": stack.ready["phone_number_id"], **text}
        answer: requests.Response = stack.api("POST", "/v1/messages", sent, **{"Idempotency-Key": key})
        return answer

    for method, repair in (("POST", f"{number}/subscribe"), ("GET", f"{number}?refresh=true")):
        withdraw(True)
        try:
            assert send(repair).status_code == 401
            until(lambda key=repair: send(key).status_code == 409, "the number that is not connected")
            assert stack.api("GET", number).json()["connection_detail"] == "token_invalid"
            assert stack.api(method, repair).status_code == 401
        finally:
            withdraw(False)
        assert stack.api(method, repair).json()["connection_state"] == "connected"
        assert send(repair).status_code == 200
    refusal = {"action": "error", "code": 131057, "match": {"path": "/messages$"}, "times": 1}
    stack.simulator("PUT", "/sim/faults", [refusal])
    assert [send("maintenance").status_code for _ in range(2)] == [500, 200]

    code = stack.simulator("POST", "/sim/codes", {"waba_id": waba_id, "seconds": -1})["code"]
    asked = {"code": code, "waba_id": waba_id, "phone_number_id": stack.ready["phone_number_id"]}
    refused = stack.api("POST", "/v1/numbers/embedded-signup", asked)
    body = refused.json()
    assert (refused.status_code, body["source"], body["error"]["error_subcode"]) == (400, "meta", 36007)
