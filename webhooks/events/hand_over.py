"""Hand-over: a fresh delivery is claimed by the statement that makes it and goes to a dispatcher in the wake-up signal.

So the dispatcher needs no statement before it sends. The lease is that of any other claim: when the signal or the
dispatcher is lost, it runs out and the delivery is claimed again (at least once).
"""

from datetime import datetime
from uuid import UUID

import msgspec

from webhooks.events.envelope import Envelope
from webhooks.stored_target import StoredTarget
from webhooks.wake_up import Packed

MOST_EVENTS = 16
"""Events of one statement whose deliveries are handed over; of more, a dispatcher claims what it has room for."""
MOST_BODY_BYTES = 16 * 1024
"""A larger body is not sent along: the dispatcher reads it from the database."""


class HandedOver(msgspec.Struct, frozen=True, array_like=True):
    """A fresh delivery that was claimed for the dispatcher that gets it. Its secrets are ciphertexts."""

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    tenant_id: UUID
    event_type: str
    claimed_at: datetime
    """Database time."""
    target: StoredTarget
    envelope: Envelope | None
    """None when the body is too large for a signal."""
    circuit_generation: int = 0
    """The one that the endpoint's circuit had at the claim; signals of the former version do not have it."""

    def packed(self) -> Packed:
        """The delivery as a signal carries it."""
        return Packed(self.id, self.claimed_at, _encoder.encode(self))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[HandedOver])


def unpacked(signal: bytes) -> list[HandedOver] | None:
    """The deliveries that a signal hands over; None when it asks to look."""
    try:
        return _decoder.decode(signal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
