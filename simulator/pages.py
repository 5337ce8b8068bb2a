"""The pages: start page, phone, inbox, and the simulated embedded sign-up with its `sdk.js`.

The pages are static files in `static/` that call the control API. They have no inline scripts, because the content
security policy forbids them.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

_STATIC = Path(__file__).parent / "static"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
# Pages of other origins load `sdk.js` with `crossorigin="anonymous"`.
_SDK_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
    **_HEADERS,
}


def _page(name: str, headers: dict[str, str]) -> Callable[[web.Request], Awaitable[web.FileResponse]]:
    async def show(_: web.Request) -> web.FileResponse:
        return web.FileResponse(_STATIC / name, headers=headers)

    return show


def add_routes(app: web.Application) -> None:
    """Register the pages in the application."""
    for path, name in (
        ("/", "index.html"),
        ("/phone", "phone.html"),
        ("/inbox/{name}", "inbox.html"),
        ("/embedded-signup", "signup.html"),
    ):
        app.router.add_get(path, _page(name, _HEADERS))
    for path in ("/sdk.js", "/en_US/sdk.js"):
        app.router.add_get(path, _page("sdk.js", _SDK_HEADERS))
    app.router.add_static("/static", _STATIC)
