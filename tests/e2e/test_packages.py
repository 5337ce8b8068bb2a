"""pip, uv and npm install the packages of the SDKs from the address of a running gateway."""

import re
import sys
from pathlib import Path

import pytest
import requests

from tests.e2e.conftest import Stack
from tests.e2e.sdks.homes import node_command, npm_command, run

pytestmark = pytest.mark.e2e


def test_pip_and_uv_install_the_python_package(stack: Stack, tmp_path: Path) -> None:
    index = ["--index-url", stack.ready["base_url"] + "/packages/simple", "--no-deps"]
    uv = str(Path(sys.executable).with_name("uv"))
    own = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "UV_FIND_LINKS": "", "UV_DEFAULT_INDEX": ""}
    for name, command in {
        "pip": [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir"],
        "uv": [uv, "pip", "install", "--quiet", "--no-cache", "--no-config"],
    }.items():
        target = tmp_path / name
        run([*command, *index, "--target", str(target), "whabuzz"], tmp_path, **own)
        assert (target / "whabuzz/py.typed").is_file()
        printed = run(
            [sys.executable, "-c", "import whabuzz; print(whabuzz.__file__)"],
            tmp_path,
            PYTHONPATH=str(target),
        )
        assert str(target) in printed


def test_npm_installs_the_tarball(stack: Stack, tmp_path: Path) -> None:
    page = requests.get(stack.ready["base_url"] + "/packages/", timeout=10)
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    [path] = re.findall(r"\$BASE_URL(/packages/whabuzz-[\d.]+\.tgz)", page.text)
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    options = ["--no-audit", "--no-fund", "--silent", "--cache", str(tmp_path / "cache")]
    address = stack.ready["base_url"] + path
    run(npm_command("install", *options, address), tmp_path)
    (tmp_path / "main.mjs").write_text('import { Whabuzz } from "whabuzz"; console.log(typeof Whabuzz);')
    assert run(node_command("main.mjs"), tmp_path).strip() == "function"
