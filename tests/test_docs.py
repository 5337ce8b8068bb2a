"""The docs name what there is: every error code, every page that is linked."""

import re
from pathlib import Path

from gateway.api.errors import ServiceError

ROOT = Path(__file__).resolve().parents[1]


def every_subclass(of: type[ServiceError]) -> set[type[ServiceError]]:
    return {of}.union(*(every_subclass(sub) for sub in of.__subclasses__()))


def test_every_error_code_is_documented_with_its_status() -> None:
    import gateway.urls

    assert gateway.api.errors
    text = (ROOT / "docs/errors.md").read_text()
    documented = set(re.findall(r"^\| (\d{3}) \| `(\w+)` \|", text, re.MULTILINE))
    defined = {(str(error.status), error.code) for error in every_subclass(ServiceError)}
    assert defined - documented == set(), "raised but not in docs/errors.md"
    assert documented - defined == set(), "in docs/errors.md but never raised"


def test_every_linked_file_exists() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
