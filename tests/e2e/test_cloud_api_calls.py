"""Every call of unmodified public Cloud API libraries, made once against the running service.

docs/cloud-api.md shows the count of working calls of each library, and the failing calls with the reasons (`FAILING`).
The tests leave out calls that register or deregister the number, because all tests share it.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Stack
from tests.e2e.test_cloud_api_libraries import (
    PICTURE,
    account,
    approved_template,
    graph,
    image,
    program,
    versions,
)
from tests.receiver import Receiver

__all__ = ["account", "graph"]

pytestmark = pytest.mark.e2e

CALLS = {
    "pywa": 75,
    "facebook-business": 10,
    "waba-sdk": 19,
    "whatsapp-cloud-api-client": 6,
    "whatsapp-sdk": 13,
    "kapso-whatsapp-cloud-api": 21,
    "waclient": 9,
    "pygwan": 9,
    "wa-cloud-py": 12,
    "heyoo": 19,
    "python-whatsapp-bot": 8,
    "whatsapp-client": 11,
    "whatsloon": 45,
    "pywce": 15,
    "py-whatsapp-cloud": 8,
    "py-whatsapp-cloudbot": 18,
    "jina-whatsapp-mcp": 7,
    "@kapso/whatsapp-cloud-api": 50,
    "@great-detail/whatsapp": 30,
    "whatsapp-api-js": 31,
    "whatsapp": 11,
    "whatsapp-business": 21,
    "whatsapp-cloud-api": 12,
    "whatsappcloudapi_wrapper": 14,
    "@chat-adapter/whatsapp": 9,
    "@microfox/whatsapp-business": 33,
}
"""The calls of each library."""
JSON_HEADER = "it sends its multipart form as `application/json`; Meta refuses that too"
OWN_SHAPE = "it expects a member that Meta's documentation does not show: "
NOT_METAS = "it is no call of Meta's: "
FAILING = {
    ("pywa", "get_blocked_users"): OWN_SHAPE + "`input` of a listed user",
    ("pywa", "get_call_permissions"): "it calls its own method without an argument",
    ("pywa", "get_groups"): OWN_SHAPE + "the groups as `data` itself",
    ("pywa", "get_signups"): "it asks for the field `message`, which Meta calls `signup_message`",
    ("pywa", "initiate_call"): OWN_SHAPE + "`success` beside `calls`",
    ("whatsapp-cloud-api-client", "upload_media"): JSON_HEADER,
    ("whatsapp-sdk", "media.upload"): JSON_HEADER,
    ("kapso-whatsapp-cloud-api", "flows.get_preview"): NOT_METAS + "`/{flow}/preview`",
    ("python-whatsapp-bot", "upload_media"): "it sends no file",
    ("whatsloon", "groups.list_groups"): OWN_SHAPE + "the groups as `data` itself",
    ("whatsloon", "groups.approve_join_request"): NOT_METAS + "`join_requests/{id}/approve`",
    ("whatsloon", "groups.reject_join_request"): NOT_METAS + "`join_requests/{id}/reject`",
    ("whatsloon", "groups.remove_participants"): "it sends `wa_ids` for `participants`",
    ("pywce", "send_template"): "it sends the type `templates`",
    ("pywce", "upload_media"): JSON_HEADER,
    ("py-whatsapp-cloud", "upload_media"): "it reads an attribute that it never sets",
    ("@kapso/whatsapp-cloud-api", "templates.get"): NOT_METAS + "`/{waba}/message_templates/{template}`",
    ("whatsapp-api-js", "updateQR"): NOT_METAS + "`POST /{phone}/message_qrdls/{code}`",
    ("@chat-adapter/whatsapp", "downloadMedia"): "it fetches nothing from the loopback addresses of tests",
    ("@microfox/whatsapp-business", "sendInteractiveCtaMessage"): "it sends the type `cta`",
    ("@microfox/whatsapp-business", "markMessagesAsRead"): "it sends `message_ids` for `message_id`",
    ("@microfox/whatsapp-business", "createTemplate"): "it drops the texts of the components",
    ("@microfox/whatsapp-business", "getQRCode"): NOT_METAS + "`/{phone}/qr_code`",
    ("@microfox/whatsapp-business", "getAnalytics"): NOT_METAS + "`/{phone}/insights`",
    ("@microfox/whatsapp-business", "getCommerceSettings"): NOT_METAS + "commerce settings of an account",
    ("@microfox/whatsapp-business", "updateCommerceSettings"): NOT_METAS + "commerce settings of an account",
    ("@microfox/whatsapp-business", "getConversationalComponents"): "it reads its own wrapper as the answer",
}
"""The calls that fail, and the reasons."""


@pytest.mark.parametrize("place", range(len(CALLS)), ids=list(CALLS))
def test_every_call_of_a_library_works(
    stack: Stack, graph: dict[str, str], account: str, receiver: Receiver, tmp_path: Path, place: int
) -> None:
    name, customer = list(CALLS)[place], f"91700{place:03d}4321"
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(PICTURE)
    received = image(stack, customer)
    environment = {
        **graph,
        "PATH": os.environ["PATH"],
        "GATEWAY": stack.ready["base_url"],
        "KEY": stack.ready["api_key"],
        "PHONE": stack.ready["phone_number_id"],
        "ACCOUNT": account,
        "CUSTOMER": customer,
        "RECEIVED": received["id"],
        "MEDIA": received["body"]["image"]["id"],
        "PICTURE": str(picture),
        "CALLBACK": receiver.url,
        "EDITED": approved_template(stack, account, f"edited_{place}"),
    }
    made = subprocess.run(
        program("calls", name), env=environment, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    results = [json.loads(line) for line in made.stdout.splitlines() if line.startswith('{"call"')]
    assert len(results) == CALLS[name]
    failed = {row["call"]: row["error"] for row in results if row["error"]}
    assert set(failed) == {call for library, call in FAILING if library == name}, failed


def test_the_page_counts_the_calls() -> None:
    page = (ROOT / "docs/cloud-api.md").read_text()
    rows = {
        match[1]: (match[2], int(match[3]), int(match[4]))
        for match in re.finditer(r"^\| ([\w.@/-]+) \| ([\w.-]+) \| (\d+) of (\d+) \|", page, re.MULTILINE)
    }
    pinned = versions()
    assert rows == {
        name: (pinned[name], calls - sum(library == name for library, _ in FAILING), calls)
        for name, calls in CALLS.items()
    }
