"""Answers for machines: `robots.txt`, `sitemap.xml`, `security.txt` (RFC 9116) and the index of packages."""

from datetime import timedelta

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html_join
from django.views.decorators.http import require_safe

from gateway.clock import now
from gateway.guides.documentation import guides

_VALID = timedelta(days=180)
"""RFC 9116 asks for less than a year."""
_OWN_PACKAGE = "whabuzz"


@require_safe
def robots(request: HttpRequest) -> HttpResponse:
    """Search engines read the guides and the error pages, nothing else."""
    lines = ("User-agent: *", "Allow: /docs/", "Allow: /errors", "Disallow: /")
    return _text(*lines, f"Sitemap: {settings.BASE_URL}/sitemap.xml")


@require_safe
def sitemap(request: HttpRequest) -> HttpResponse:
    """Every page of the guides."""
    addresses = ((settings.BASE_URL, "" if page.name == "index" else f"{page.name}/") for page in guides())
    body = format_html_join("", "<url><loc>{}/docs/{}</loc></url>", addresses)
    head = (
        '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    )
    return HttpResponse(f"{head}{body}</urlset>", content_type="application/xml")


@require_safe
def security(request: HttpRequest) -> HttpResponse:
    """Serve the contact for reports of vulnerabilities."""
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
    """Lead pip on to PyPI for what the SDK needs. Never for the SDK itself: there its name is anybody's.

    The SDK's own page is a file of `site/public/`, which WhiteNoise answers.
    """
    if name.lower() == _OWN_PACKAGE:
        raise Http404
    return HttpResponseRedirect(f"https://pypi.org/simple/{name}/")
