"""Names in the OpenAPI document that client generators can use: schemas and enumerations.

A postprocessing hook of drf-spectacular. The Python classes end with `In` and `Out`; the document has the names
that the author of a client expects: `ApiKey` and `ApiKeyRequest`. In Go, `NewApiKey` is the name of the constructor of
`ApiKey`, so the schema of a new key is `CreatedApiKey`.
"""

import re
from typing import Any

# --- References (`$ref`) of an OpenAPI document.

Json = dict[str, Any]


def resolved(document: Json, node: Json) -> Json:
    """The target of a reference. A node that is not a reference is returned as it is."""
    while "$ref" in node:
        found: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


RENAMED = {
    "CustomerHoursOut": "StoredCustomerHours",
    "NumberOut": "PhoneNumber",
    "RefreshedNumberOut": "RefreshedPhoneNumber",
    "EventOut": "EventSummary",
    "OneEventOut": "EventWithDeliveries",
}
"""Names that would clash under the rules. `Number` is a class of Java and JavaScript. `Event` already names the
delivered event.
"""
RULES = (
    (r"Paginated(\w+?)(?:Out)?List", r"\1List"),
    (r"Patched(\w+)In", r"\1Request"),
    (r"New(\w+)Out", r"Created\1"),
    (r"(\w+)Out", r"\1"),
    (r"(\w+)In", r"\1Request"),
)


def good_names(result: Json, **_: Any) -> Json:
    """Postprocessing: rename the schemas, refer to named enumerations."""
    schemas: Json = result["components"]["schemas"]
    names = _names(set(schemas))
    enumerations = {name: schemas.pop(name) for name in list(schemas) if "enum" in schemas[name]}
    named = {tuple(schema["enum"]): names[name] for name, schema in enumerations.items()}
    result = _rewritten(result, names, named)
    renamed = {
        names[name]: schema for name, schema in (result["components"]["schemas"] | enumerations).items()
    }
    result["components"]["schemas"] = dict(sorted(renamed.items()))
    _name_for_go(result["components"]["schemas"])
    return result


def _names(former: set[str]) -> dict[str, str]:
    """The new name of each schema. A schema keeps its name if another schema already has the new one."""
    names: dict[str, str] = {}
    for name in sorted(former):
        new = RENAMED.get(name) or _by_rule(name)
        names[name] = name if new in former or new in names.values() else new
    return names


def _name_for_go(schemas: Json) -> None:
    """Give a schema another name in Go if oapi-codegen derives the same name from a member of another schema.

    Members that refer to a renamed schema keep their own names in Go. Otherwise oapi-codegen would name them after the
    schema.
    """
    members = {
        owner + "".join(part.capitalize() for part in member.split("_"))
        for owner, schema in schemas.items()
        for member, value in schema.get("properties", {}).items()
        if "$ref" not in value
    }
    named = members & schemas.keys()
    for name in named:
        schemas[name]["x-go-name"] = f"{name}Object"
    references = {f"#/components/schemas/{name}" for name in named}
    for schema in schemas.values():
        for member, value in schema.get("properties", {}).items():
            if value.get("$ref") in references:
                value["x-go-name"] = "".join(part.capitalize() for part in member.split("_"))


def _by_rule(name: str) -> str:
    for pattern, replacement in RULES:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def _rewritten(node: Any, names: dict[str, str], named: dict[tuple[Any, ...], str]) -> Any:
    if isinstance(node, list):
        return [_rewritten(part, names, named) for part in node]
    if not isinstance(node, dict):
        return node
    if "x-spec-enum-id" in node or isinstance(node.get("enum"), list):
        node = _enumeration(node, named)
    made = {name: _rewritten(part, names, named) for name, part in node.items()}
    reference = made.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/components/schemas/"):
        name = reference.rpartition("/")[2]
        made["$ref"] = f"#/components/schemas/{names.get(name, name)}"
    return made


def _enumeration(schema: Json, named: dict[tuple[Any, ...], str]) -> Json:
    """An enumeration without drf-spectacular's additions, or a reference if the enumeration has a name."""
    schema = {name: value for name, value in schema.items() if name != "x-spec-enum-id"}
    values = schema["enum"]
    if (known := named.get(tuple(values))) is not None:
        return {"$ref": f"#/components/schemas/{known}"}
    # drf-spectacular lists the values with their labels in the description. This repeats `enum`.
    lines = schema.get("description", "").splitlines()
    description = "\n".join(line for line in lines if not line.startswith("* `")).strip()
    schema.pop("description", None)
    return {**schema, "description": description} if description else schema
