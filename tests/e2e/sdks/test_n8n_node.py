"""The n8n node, from its npm package, against the running service. n8n itself runs it in `real_n8n.py`."""

import base64
import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Stack
from tests.e2e.sdks.homes import node_command, run
from tests.e2e.test_cloud_api_libraries import PICTURE

pytestmark = pytest.mark.e2e


def test_the_node_does_what_its_fields_say(stack: Stack, packages: Path, tmp_path: Path) -> None:
    [tarball] = packages.glob("n8n-*.tgz")
    subprocess.run(["tar", "xzf", tarball, "-C", tmp_path], check=True)
    (tmp_path / "node_modules").symlink_to(ROOT / "tests/node/node_modules")
    package = json.loads((tmp_path / "package/package.json").read_text())
    assert all(
        (tmp_path / "package" / path).is_file()
        for kind in ("nodes", "credentials")
        for path in package["n8n"][kind]
    )
    components = [
        {"type": "BODY", "text": "Hi {{1}}, order {{2}} left.", "example": {"body_text": [["Asha", "A-17"]]}}
    ]
    template = {"name": "n8n_order", "language": "en", "category": "UTILITY", "components": components}
    made = stack.api("POST", "/v1/templates", template).json()
    stack.simulator("POST", f"/sim/templates/{made['id']}", {"event": "APPROVED"})
    task = {
        "baseUrl": stack.ready["base_url"],
        "apiKey": stack.ready["api_key"],
        "from": stack.ready["phone_number_id"],
        "to": "+919800000078",
        "workflow": f"workflow-{tmp_path.name}",
        "picture": base64.b64encode(PICTURE).decode(),
    }
    command = node_command(str(ROOT / "tests/node/n8n.cjs"), json.dumps(task), str(tmp_path / "package"))
    seen = json.loads(run(command, tmp_path).strip().splitlines()[-1])
    trigger = seen.pop("trigger")
    words = seen.pop("failed")["error"]
    another, uploads_stored = seen.pop("another")
    body = {"type": "body", "parameters": [{"type": "text", "text": text} for text in ("Asha", "A-17")]}
    assert seen == {
        "same": True,
        "template": [1, {"name": "n8n_order", "language": {"code": "en"}, "components": [body]}],
        "media": 1,
        # Whether the second run got the first one's answer, and that of the earlier run; and the uploads.
        "repeats": [[True, True, 0], [True, False, 1]],
        "later": ["scheduled", True, True],
        "addressed": [None, "IN.77889900112233445566"],
        "found": [True, "text"],
    }
    assert another.startswith("This Idempotency-Key was used with a different body")
    assert uploads_stored == 2
    assert words.startswith("from: Not a number that this key sends from.")
    assert trigger == {
        "seen": [False, True, False, True, False, True, False],
        "statuses": [200, 401, 401, 401],
        "started": [["a", "ä"], ["message.inbound"]],
        "endpoints": [
            {
                "same": True,
                "status": "active",
                "filter": {"data.message.type": "text", "type": "message.inbound"},
            }
        ],
        "state": ["secret"],
        "published": {
            "unpublished": [{"same": True, "status": "paused"}],
            # The delivery that waited, and the event that came while the workflow was not published.
            "arrived": [True, True],
            "metadata": {},
            "tested": [0, [[True, "active"]]],
            "noted": [False, True, {}],
        },
    }
