"""References (`$ref`) of an OpenAPI document."""

from typing import Any

Json = dict[str, Any]


def resolved(document: Json, node: Json) -> Json:
    """What a node of the document refers to; the node itself when it is no reference."""
    while "$ref" in node:
        found: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node
