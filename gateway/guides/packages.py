"""The package index at `/packages/simple/`, beside the SDK's own page, which WhiteNoise answers from `site/public/`."""

from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.views.decorators.http import require_safe

OWN = "whabuzz"


@require_safe
def project(request: HttpRequest, name: str) -> HttpResponseRedirect:
    """Lead pip on to PyPI for what the SDK needs. Never for the SDK itself: there its name is anybody's."""
    if name.lower() == OWN:
        raise Http404
    return HttpResponseRedirect(f"https://pypi.org/simple/{name}/")
