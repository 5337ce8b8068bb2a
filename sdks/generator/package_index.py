"""`python -m generator.package_index DIRECTORY`: write the files that a running gateway serves at `/packages/`.

These are the wheel, the npm tarballs, an index for pip (PEP 503), and a page for people. The service decides which
other projects the index lists (`gateway/guides/well_known.py`).
"""

import hashlib
import shutil
import sys
from html import escape
from pathlib import Path

from generator.packages import build

NAME = "whabuzz"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title></head>
<body><main><h1>{title}</h1>
{body}
</main></body></html>
"""


def publish(target: Path) -> None:
    """Replace the contents of a directory with the files to serve."""
    shutil.rmtree(target, ignore_errors=True)
    build(target)
    [wheel], tarballs = target.glob("*.whl"), sorted(target.glob("*.tgz"), reverse=True)
    project = target / "simple" / NAME
    project.mkdir(parents=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="../../{wheel.name}#sha256={digest}" data-requires-python="&gt;=3.10">{wheel.name}</a>'
    _write(project, f"Links for {NAME}", link)
    _write(project.parent, "Simple index", f'<a href="{NAME}/">{NAME}</a>')
    commands = [f"pip install --index-url $BASE_URL/packages/simple {NAME}"]
    for each in tarballs:
        peers = "" if each.name.startswith(NAME) else "--omit=peer "
        commands.append(f"npm install {peers}$BASE_URL/packages/{each.name}")
    lines = [f"<p><code>{escape(command)}</code></p>" for command in commands]
    if not tarballs:
        lines.append("<p>Packages of npm: <code>make packages</code> builds them.</p>")
    lines.append(
        '<p><code>$BASE_URL</code> is the address of this service. <a href="/docs/sdks/">How to use them</a></p>'
    )
    _write(target, "Packages", "\n".join(lines))


def _write(folder: Path, title: str, body: str) -> None:
    (folder / "index.html").write_text(PAGE.format(title=title, body=body))


if __name__ == "__main__":
    publish(Path(sys.argv[1]).resolve())
