"""JSON for people: stored bytes with one member a line."""

import orjson


def indented(body: bytes) -> str:
    """A JSON document, indented."""
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2).decode()
