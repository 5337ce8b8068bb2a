"""The event stream: `GET /v1/events/stream` as server-sent events."""
