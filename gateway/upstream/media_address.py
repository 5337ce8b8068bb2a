"""The service's own address of a media's bytes, in the place of the upstream's, which needs the account's token."""

from django.conf import settings


def media_url(media_id: str) -> str:
    """Where the bytes of a media are, for a key of the tenant."""
    return f"{settings.BASE_URL}/{settings.META_GRAPH_VERSION}/{media_id}/content"
