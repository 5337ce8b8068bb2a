"""Server-sent events: the text form of the event stream."""

from webhooks.stream.positions import Position

CONTENT_TYPE = "text/event-stream"
HEADERS = {
    "Content-Type": CONTENT_TYPE,
    "Cache-Control": "no-store",
    # nginx gathers an answer before it passes it on, unless told otherwise.
    "X-Accel-Buffering": "no",
}
RETRY_MILLISECONDS = 1_000


def opening(position: Position) -> bytes:
    """The first lines: when to come again, and the place to go on from before the first event."""
    return b"retry: %d\n%b" % (RETRY_MILLISECONDS, heartbeat(position))


def heartbeat(position: Position) -> bytes:
    """A sign of life without an event; the place moves on past events that a filter left out."""
    return b"id: %b\n: alive\n\n" % str(position).encode()


def event(position: Position, body: bytes) -> bytes:
    """An event. Line ends, which JSON has between its members alone, become lines of data."""
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"id: %b\ndata: %b\n\n" % (str(position).encode(), lines)


def closing(reason: str) -> bytes:
    """The last words before the service ends a stream."""
    return b"event: closed\ndata: %b\n\n" % reason.encode()
