"""The contract in other tools: a linter finds nothing, and generated clients work."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Stack
from tests.e2e.sdks.homes import kept, node_command, run

CONTRACT = ROOT / "docs/openapi.json"
REQUIREMENTS = ROOT / "requirements-dev.txt"
NODE = ROOT / "tests/node"
NODE_MODULES = NODE / "node_modules"


def test_redocly_finds_nothing() -> None:
    command = node_command(
        str(NODE_MODULES / "@redocly/cli/bin/cli.js"), "lint", "--config", str(NODE / "redocly.yaml")
    )
    found = json.loads(run([*command, "--format", "json", str(CONTRACT)], NODE, REDOCLY_TELEMETRY="off"))
    assert found["problems"] == []
    assert found["totals"]["ignored"] == 0


@pytest.fixture(scope="module")
def python_client() -> Iterator[Path]:
    """A client that openapi-python-client has generated, importable as `generated_client`."""
    home = kept("python", [CONTRACT, REQUIREMENTS, Path(__file__)], generate_python)
    sys.path.insert(0, str(home))
    yield home
    sys.path.remove(str(home))
    for name in [name for name in sys.modules if name.partition(".")[0] == "generated_client"]:
        del sys.modules[name]


def generate_python(home: Path) -> None:
    config = home / "config.yaml"
    files = ("application/pdf", "application/x-ndjson")
    overrides = dict.fromkeys(files, "application/octet-stream")
    config.write_text(json.dumps({"post_hooks": [], "content_type_overrides": overrides}))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(CONTRACT)]
    command += ["--meta", "none", "--config", str(config), "--output-path", str(home / "generated_client")]
    run([*command, "--fail-on-warning"], home)


def test_every_module_of_the_generated_python_client_can_be_imported(python_client: Path) -> None:
    for path in (python_client / "generated_client").rglob("*.py"):
        name = ".".join(path.relative_to(python_client).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))


def part(name: str) -> ModuleType:
    return importlib.import_module(f"generated_client.{name}")


@pytest.mark.e2e
def test_the_generated_python_client_works(python_client: Path, stack: Stack) -> None:
    number = stack.ready["phone_number_id"]
    client = part("client").AuthenticatedClient(stack.ready["base_url"], stack.ready["api_key"])
    with client as opened:
        models = part("models")
        message = models.TextMessage.from_dict(
            {"from": number, "to": "+917000900051", "type": "text", "text": {"body": "Hello"}}
        )
        sent = part("api.messages.send_message").sync(client=opened, body=message)
        assert sent.messages[0].id.startswith("wamid.")
        file = part("types").File(BytesIO(b"\xff\xd8\xff"), "photo.jpg", "image/jpeg")
        form = models.MediaRequest(file=file, from_=number)
        assert part("api.media.upload_media").sync(client=opened, body=form).id
        listed = part("api.events.list_events")
        pages, cursor = [], None
        while len(pages) < 2:
            asked: dict[str, Any] = {"limit": 1} | ({"cursor": cursor} if cursor else {})
            page = listed.sync(client=opened, **asked)
            pages.append(page.data[0].id)
            cursor = page.next_cursor
        assert len(set(pages)) == 2
        refused = part("api.messages.send_message").sync(
            client=opened, body=models.TextMessage.from_dict({**message.to_dict(), "from": "nobody"})
        )
        assert refused.error.code == "invalid_request"


@pytest.mark.e2e
def test_the_generated_typescript_client_works(stack: Stack, tmp_path: Path) -> None:
    sources = [
        CONTRACT,
        REQUIREMENTS,
        NODE / "package-lock.json",
        NODE / "generated_client.ts",
        Path(__file__),
    ]
    shutil.copytree(kept("typescript", sources, compile_typescript), tmp_path, dirs_exist_ok=True)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    printed = run(
        node_command("out/generated_client.js"),
        tmp_path,
        BASE_URL=stack.ready["base_url"],
        API_KEY=stack.ready["api_key"],
        FROM=stack.ready["phone_number_id"],
    )
    seen = json.loads(printed)
    assert seen["wamid"].startswith("wamid.")
    assert seen["media"]
    assert seen["pages"] == 2
    assert seen["refused"] == "invalid_request"


def compile_typescript(home: Path) -> None:
    """Generate the types of the contract, and compile the client that uses them."""
    run(
        node_command(str(NODE_MODULES / "openapi-typescript/bin/cli.js"), str(CONTRACT), "-o", "contract.ts"),
        home,
    )
    shutil.copy(NODE / "generated_client.ts", home)
    (home / "node_modules").symlink_to(NODE_MODULES)
    (home / "package.json").write_text('{"private": true, "type": "module"}')
    options = ["--strict", "--target", "ES2022", "--module", "NodeNext", "--lib", "ES2022,DOM,DOM.Iterable"]
    options += ["--moduleResolution", "NodeNext", "--outDir", "out", "--types", "node", "--skipLibCheck"]
    run(node_command(str(NODE_MODULES / "typescript/bin/tsc"), *options, "generated_client.ts"), home)
    (home / "node_modules").unlink()  # it leads to this working copy
