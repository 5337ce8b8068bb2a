"""Public pages: the landing page, the terms and the privacy notice.

The texts are the operator's: `terms.md` and `privacy.md` in the folder TEXTS_DIR, or else the defaults in
`templates/public/`. A sign-up stores the digest of each text that it accepted.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

import markdown
from django.apps import apps
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template import engines
from django.template.loader import get_template
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from gateway.clock import now

TEXTS = {"terms": "Terms of service", "privacy": "Privacy notice"}
"""The titles of the texts, by the name in the URL and of the file."""


@require_safe
def landing(request: HttpRequest) -> HttpResponse:
    """Show the landing page with the prices. People who are logged in are redirected to the console."""
    if request.user.is_authenticated:
        return redirect("console")
    return render(request, "public/landing.html", {"price": _price(), "trial_days": settings.TRIAL_DAYS})


@require_safe
def legal(request: HttpRequest, name: str) -> HttpResponse:
    """Show the terms of service or the privacy notice."""
    # The operator's text is trusted like a template.
    text = mark_safe(markdown.markdown(text_of(name)))  # noqa: S308
    return render(request, "public/legal.html", {"title": TEXTS[name], "text": text})


def text_of(name: str) -> str:
    """Render a Markdown text, with the operator's names and the days for which metadata is kept filled in."""
    own = Path(settings.TEXTS_DIR) / f"{name}.md" if settings.TEXTS_DIR else None
    if own is not None and own.is_file():
        template = engines["django"].from_string(own.read_text())
    else:
        template = get_template(f"public/{name}.md")
    return template.render(
        {
            "service": settings.SERVICE_NAME.capitalize(),
            "support_email": settings.SUPPORT_EMAIL,
            "operator": settings.BILLING_SELLER_NAME,
            "operator_address": settings.BILLING_SELLER_ADDRESS,
            "metadata_days": settings.EVENT_METADATA_DAYS,
        }
    )


def digests() -> dict[str, str]:
    """The SHA-256 (hex) of each current text, by the text's name. A sign-up accepts these texts."""
    return {name: sha256(text_of(name).encode()).hexdigest() for name in TEXTS}


def _price() -> dict[str, Any] | None:
    """This month's prices without GST. None when billing is off."""
    if not (apps.is_installed("billing") and settings.BILLING_ENABLED):
        return None
    from billing import plan
    from billing.pricing.money import rupees
    from billing.pricing.periods import Period

    found = plan.terms_for(None, Period.of(now()))
    return {
        "first": rupees(found.first_number_paise),
        "further": rupees(found.additional_number_paise),
        "included": found.included_numbers,
        "gst_percent": found.gst_percent,
    }
