"""Forms whose answer shows a secret once. Each has an id, so a reload or a double click does not submit it twice."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.core.cache import cache
from django.http import HttpRequest

FORM_ID = "form_id"
"""The form field with the id."""
FORM_LIVES_SECONDS = 24 * 3600


@contextmanager
def acting_once(request: HttpRequest) -> Iterator[bool]:
    """Whether the block may act: False if the same form was submitted before, and then the next page says so. If the
    block raises, nothing was done, and the form may be submitted again.
    """
    form_id = request.POST.get(FORM_ID, "")[:64]
    mark = f"form:{request.session.session_key}:{form_id}"
    if form_id and not cache.add(mark, 1, FORM_LIVES_SECONDS):
        messages.warning(
            request,
            "This form was already sent, and its answer was shown once. If you lost the secret, create a new one.",
        )
        yield False
        return
    try:
        yield True
    except Exception:
        cache.delete(mark)
        raise
