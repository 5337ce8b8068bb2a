"""Addresses of the Cloud API front that stand in its answers."""

from django.conf import settings


def media_url(media_id: str) -> str:
    """Where the bytes of a media are, with the same credential."""
    return f"{settings.BASE_URL}/{settings.META_GRAPH_VERSION}/{media_id}/content"
