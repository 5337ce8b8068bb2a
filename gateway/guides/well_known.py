"""Responses for programs: `robots.txt`, `sitemap.xml`, `security.txt` (RFC 9116) and the package index."""

from datetime import timedelta

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html_join
from django.views.decorators.http import require_safe

from gateway.clock import now
from gateway.guides.documentation import guides

_VALID = timedelta(days=180)
"""How long `security.txt` is valid. RFC 9116 recommends less than a year."""
_OWN_PACKAGE = "whabuzz"


@require_safe
def robots(request: HttpRequest) -> HttpResponse:
    """Allow search engines to read only the guides and the error pages."""
    lines = ("User-agent: *", "Allow: /docs/", "Allow: /errors", "Disallow: /")
    return _text(*lines, f"Sitemap: {settings.BASE_URL}/sitemap.xml")


@require_safe
def sitemap(request: HttpRequest) -> HttpResponse:
    """The site map: all pages of the guides."""
    addresses = ((settings.BASE_URL, "" if page.name == "index" else f"{page.name}/") for page in guides())
    body = format_html_join("", "<url><loc>{}/docs/{}</loc></url>", addresses)
    head = (
        '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    )
    return HttpResponse(f"{head}{body}</urlset>", content_type="application/xml")


@require_safe
def security(request: HttpRequest) -> HttpResponse:
    """The contact for reports of vulnerabilities."""
    expires = (now() + _VALID).strftime("%Y-%m-%dT00:00:00Z")
    return _text(
        f"Contact: mailto:{settings.SUPPORT_EMAIL}",
        f"Expires: {expires}",
        "Preferred-Languages: en",
        f"Canonical: {settings.BASE_URL}/.well-known/security.txt",
    )


def _text(*lines: str) -> HttpResponse:
    return HttpResponse("\n".join(lines) + "\n", content_type="text/plain; charset=utf-8")


@require_safe
def package_index(request: HttpRequest, name: str) -> HttpResponseRedirect:
    """Redirect pip to PyPI for the SDK's dependencies, but never for the SDK itself, because anybody could register its
    name there. WhiteNoise serves the SDK's own page, a file of `site/public/`.
    """
    if name.lower() == _OWN_PACKAGE:
        raise Http404
    return HttpResponseRedirect(f"https://pypi.org/simple/{name}/")
