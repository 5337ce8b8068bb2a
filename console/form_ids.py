"""Forms whose answer shows a secret once. Each has an id, so a reload or a double click does not submit it twice."""

from django.contrib import messages
from django.core.cache import cache
from django.http import HttpRequest

FORM_ID = "form_id"
"""The form field with the id."""
FORM_LIVES_SECONDS = 24 * 3600


def sent_before(request: HttpRequest) -> bool:
    """Whether the same form was submitted before. If it was, the next page says so."""
    form_id = request.POST.get(FORM_ID, "")[:64]
    if not form_id or cache.add(f"form:{request.session.session_key}:{form_id}", 1, FORM_LIVES_SECONDS):
        return False
    messages.warning(
        request,
        "This form was already sent, and its answer was shown once. If you lost the secret, create a new one.",
    )
    return True
