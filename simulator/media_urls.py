"""URLs of files in the form of Meta's CDN: signed, and valid for five minutes (upstream fact 1.2)."""

import hashlib
import hmac
import time

from simulator.parts import Simulator
from simulator.world.records import Media

URL_SECONDS = 300


def media_url(sim: Simulator, media: Media) -> str:
    """The URL of a file's bytes."""
    expires = int(time.time()) + URL_SECONDS
    return (
        f"{sim.config.base_url}/whatsapp_business/attachments/"
        f"?mid={media.id}&ext={expires}&hash={url_hash(sim, media.id, expires)}"
    )


def url_hash(sim: Simulator, media_id: str, expires: int) -> str:
    """The signature in the URL of a file."""
    message = f"{media_id}:{expires}".encode()
    return "AT" + hmac.new(sim.config.app_secret.encode(), message, hashlib.sha256).hexdigest()[:40]
