"""MkDocs hooks: adds the API reference, keeps links inside the site, and writes what programs read.

Besides its HTML each page is written as Markdown (`/docs/<page>.md`), all of them in one text (`llms-full.txt`) with
an index (`llms.txt`, https://llmstxt.org). The hashes of the pages' inline scripts go to `csp.json` beside the
served folder: they are what the content security policy of `/docs/` allows (`gateway/guides/serving.py`).
"""

import base64
import hashlib
import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from gateway.guides import reference

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#|/)([\w./-]+?\.md)(#[\w-]+)?\)")
_INLINE_SCRIPT = re.compile(
    rb"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL
)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
FEWEST_COLUMNS = 3
"""Tables of fewer columns fit a phone."""
_pages: dict[str, tuple[str, str]] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference into the navigation, a page for each tag of the contract."""
    pages = [{title: name} for name, title, _ in reference.pages(Path(config.docs_dir) / "openapi.json")]
    navigation = config.nav or []
    if not any("API reference" in entry for entry in navigation):
        navigation.insert(2, {"API reference": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference's pages, which no file holds, and the collections to download."""
    for name, _, markdown in reference.pages(Path(config.docs_dir) / "openapi.json"):
        files.append(File.generated(config, name, content=markdown))
    for collection in (Path(config.docs_dir).parent / "sdks/collections").glob("*.json"):
        files.append(File.generated(config, f"collections/{collection.name}", abs_src_path=str(collection)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name pages that only the repository holds instead of linking them."""

    def kept(link: re.Match[str]) -> str:
        path = (Path(page.file.src_uri).parent / link[2]).as_posix()
        found = files.get_file_from_path(path)
        return link[0] if found is not None and found.inclusion is not InclusionLevel.EXCLUDED else link[1]

    text = _LINK.sub(kept, markdown)
    _pages[page.file.src_uri] = (str(page.title), text)
    return text


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put each table of several columns into a part that a phone scrolls sideways, by the keyboard too."""
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


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """The first page of the navigation is where `/docs/` leads."""
    config.extra["first_page"] = nav.pages[0].url
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write the Markdown of the pages, the index for programs, the start page and the scripts' hashes."""
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
    first = config.extra["first_page"]
    (site / "index.html").write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{config.site_name}</title>'
        f'<meta http-equiv="refresh" content="0; url={first}"></head>'
        f'<body><main><h1>{config.site_name}</h1><p><a href="{first}">Documentation</a></p></main></body></html>'
    )
    scripts = {match for page in site.rglob("*.html") for match in _INLINE_SCRIPT.findall(page.read_bytes())}
    hashes = sorted(
        "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts
    )
    (site.parents[1] / "csp.json").write_text(json.dumps(hashes))
