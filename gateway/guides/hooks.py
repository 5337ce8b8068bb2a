"""MkDocs hooks: add the API reference, keep links inside the site, and write files for programs.

Besides HTML, the hooks write each page as Markdown (`/docs/<page>.md`), all pages as one text (`llms-full.txt`), and an
index (`llms.txt`, https://llmstxt.org). They write the hashes of the pages' inline scripts to `csp.json` beside the
served folder, for the content security policy of `/docs/` (`gateway/guides/documentation.py`).
"""

import base64
import hashlib
import json
import re
from pathlib import Path

from generator.operations import read
from generator.samples import message, parsed, tabs
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from gateway.guides import reference
from gateway.meta_errors import catalogue

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#|/)([\w./-]+?\.md)(#[\w-]+)?\)")
_INLINE_SCRIPT = re.compile(
    rb"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL
)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_ERROR_ROW = re.compile(r"^(\| \d{3} \| `([a-z_]+)`) \|", re.MULTILINE)
_BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_TABS = frozenset(
    {
        "batches.md",
        "index.md",
        "ledger.md",
        "media.md",
        "messages.md",
        "numbers.md",
        "platform-apps.md",
        "requests.md",
        "sandbox.md",
        "sending.md",
        "templates.md",
        "webhooks.md",
    }
)
"""Guides for programs that call the API. The quickstart and the simulator's guide are for a terminal."""
_TRY_IT = re.compile(r"^<details class=\"try-it\".*\n\n?", re.MULTILINE)
FEWEST_COLUMNS = 3
"""Tables with fewer columns fit a phone's screen."""
_pages: dict[str, tuple[str, str]] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the reference to the navigation, a page for each tag of the contract."""
    pages = [{title: name} for name, title, _ in reference.pages(Path(config.docs_dir) / "openapi.json")]
    navigation = config.nav or []
    if not any("API reference" in entry for entry in navigation):
        navigation.insert(3, {"API reference": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages of the reference, and the collections to download."""
    for name, _, markdown in reference.pages(Path(config.docs_dir) / "openapi.json"):
        files.append(File.generated(config, name, content=markdown))
    files.append(File.generated(config, "whatsapp-errors.md", content=_meta_errors()))
    for collection in (Path(config.docs_dir).parent / "sdks/collections").glob("*.json"):
        files.append(File.generated(config, f"collections/{collection.name}", abs_src_path=str(collection)))
    return files


def _meta_errors() -> str:
    """The page of Meta's error codes, from the catalogue. Each code is a section, so that the search finds it."""
    lines = [
        "---\nhide: [toc]\n---",
        "# WhatsApp's error codes",
        "",
        'An error with `"source": "meta"`, a failed message and its events carry one of these codes, or one that '
        "Meta has added since. Each is a page of its own as well, at `/errors/131047`. Back to [errors](errors.md).",
        "",
    ]
    for code in catalogue():
        lines += [f"## {code.name}: {code.title} {{ #{code.name} }}", "", code.cause, ""]
        lines += [f"**What to do:** {code.repair}", "", f"**Send it again?** {code.again.capitalize()}."]
        lines += [f"[Meta's page]({code.page})", ""]
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to pages outside of the site with the links' texts."""

    def kept(link: re.Match[str]) -> str:
        path = (Path(page.file.src_uri).parent / link[2]).as_posix()
        found = files.get_file_from_path(path)
        return link[0] if found is not None and found.inclusion is not InclusionLevel.EXCLUDED else link[1]

    text = _LINK.sub(kept, markdown)
    if page.file.src_uri in WITH_TABS:
        text = with_tabs(text, Path(config.docs_dir) / "openapi.json")
    if page.file.src_uri == "errors.md":
        text = _with_anchors(text)
    _pages[page.file.src_uri] = (str(page.title), _TRY_IT.sub("", text))
    return text


def with_tabs(text: str, document: Path) -> str:
    """A guide with its curl commands and messages in each language, as tabs.

    A `sh` block is parsed as a curl command, and a JSON object with `type` and `to` as a message. Other code is
    unchanged.
    """
    groups = read(json.loads(document.read_text()))

    def shown(block: re.Match[str]) -> str:
        language, code = block[1], block[2]
        if language == "sh":
            sample, curl = parsed(code), code
        else:
            sample, curl = message(code), None
        if sample is None:
            return block[0]
        try:
            return "\n".join(tabs(sample, groups, curl=curl))
        except ValueError:
            return block[0]

    return _BLOCK.sub(shown, text)


def _with_anchors(text: str) -> str:
    """Add an anchor to the first row of each code on the page of the service's errors (`/errors#invalid_request`)."""
    seen: set[str] = set()

    def anchored(row: re.Match[str]) -> str:
        if row[2] in seen:
            return row[0]
        seen.add(row[2])
        return f"{row[1]}{{ #{row[2]} }} |"

    return _ERROR_ROW.sub(anchored, text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make each table with several columns scroll sideways on a phone, by keyboard too."""
    return _TABLE.sub(_scrolling, html)


def _scrolling(table: re.Match[str]) -> str:
    heads = [_TAG.sub("", head).strip() for head in _HEAD.findall(table[0])]
    if len(heads) < FEWEST_COLUMNS:
        return table[0]
    name = ", ".join(filter(None, heads)).replace('"', "&quot;")
    return f'<div class="columns" tabindex="0" role="region" aria-label="Table: {name}">{table[0]}</div>'


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the theme's search dialog for screen readers."""
    return output.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )


def on_post_build(config: MkDocsConfig) -> None:
    """Write the Markdown of the pages, the index for programs, and the hashes of scripts."""
    site = Path(config.site_dir)
    for name, (_, text) in _pages.items():
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    index = [
        f"# {config.site_name}",
        "",
        "> Send WhatsApp messages with one API key, get every event as a signed",
    ]
    index += ["> webhook. Each page below is Markdown.", "", "## Pages", ""]
    index += [f"- [{title}](/docs/{name})" for name, (title, _) in sorted(_pages.items())]
    (site / "llms.txt").write_text("\n".join(index) + "\n")
    (site / "llms-full.txt").write_text("\n\n".join(text for _, (_, text) in sorted(_pages.items())) + "\n")
    # The service itself answers `/sitemap.xml`, because the build does not know the site's address.
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        (site / name).unlink(missing_ok=True)
    scripts = {match for page in site.rglob("*.html") for match in _INLINE_SCRIPT.findall(page.read_bytes())}
    hashes = sorted(
        "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts
    )
    (site.parents[1] / "csp.json").write_text(json.dumps(hashes))
