"""Generate the resources of the TypeScript SDK from the operations of the contract."""

import json
import re

from generator.operations import FORMER_GROUPS, Json, Operation, Parameter, camel, pascal

HEAD = """// Resources of the API, one method per operation. Generated from docs/openapi.json by `make sdks`.

import { type Download, type Pages, Resource, type Transport } from "./transport.js";
import type { FileInput, KeyedOptions, RequestOptions } from "./calls.js";
import type { Schemas } from "./schemas.js";

"""


def module(groups: dict[str, list[Operation]]) -> str:
    """The source of `resources.ts`."""
    source = HEAD + "\n".join(_resource(group, operations) for group, operations in groups.items())
    members = "".join(f"  readonly {camel(group)}: {pascal(group)};\n" for group in groups)
    made = "".join(f"    this.{camel(group)} = new {pascal(group)}(transport);\n" for group in groups)
    for former, group in FORMER_GROUPS.items():
        members += (
            f"  /** @deprecated It is `{camel(group)}`. */\n  readonly {camel(former)}: {pascal(group)};\n"
        )
        made += f"    this.{camel(former)} = this.{camel(group)};\n"
    return (
        f"{source}\n/** Every group of operations. */\nexport class Resources {{\n{members}\n"
        f"  constructor(transport: Transport) {{\n{made}  }}\n}}\n"
    )


_MEDIA = ("image", "video", "audio", "document", "sticker")


def options(contract: Json) -> str:
    """The source of the n8n node's `contract.ts`, with the values that the node's fields offer."""
    kinds = contract["components"]["schemas"]
    mapping = kinds["OutgoingMessage"]["discriminator"]["mapping"]
    lists = {
        "EVENT_TYPES": ["*", *kinds["Event"]["discriminator"]["mapping"]],
        "MEDIA_TYPES": [name for name in _MEDIA if name in mapping],
    }
    source = "// What fields offer. Generated from docs/openapi.json by `make sdks`.\n\n"
    source += f'export const API_VERSION = "{contract["info"]["version"]}";\n'
    for name, values in lists.items():
        lines = "".join(f"  {json.dumps({'name': _shown(each), 'value': each})},\n" for each in values)
        source += f"\nexport const {name} = [\n{lines}];\n"
    return source


def _shown(value: str) -> str:
    """The text of an option, such as `Message Inbound` for `message.inbound`."""
    return "Every Event" if value == "*" else re.sub(r"[._]", " ", value).title()


def _resource(group: str, operations: list[Operation]) -> str:
    lines = [f"/** {operations[0].summary_of_group} */", f"export class {pascal(group)} extends Resource {{"]
    for operation in operations:
        lines += [*_method(operation), ""]
    lines[-1] = "}"
    return "\n".join(lines) + "\n"


def _method(operation: Operation) -> list[str]:
    answer, send = _answer(operation)
    arguments = [f"{camel(each.name)}: string" for each in operation.path_parameters]
    if operation.body is not None:
        optional = "" if operation.body_required else "?"
        arguments.append(f"body{optional}: {type_of(operation.body)}")
    if operation.form:
        arguments.append(f"form: {_members(operation.form)}")
    # Every list method takes a query before its options, even if the query has no parameters, as in release 1.0.0.
    if takes_query := bool(operation.query) or operation.item is not None:
        required = any(each.required for each in operation.query)
        members = _members(operation.query, absent="null") if operation.query else "Record<string, never>"
        arguments.append(f"query: {members}" + ("" if required else " = {}"))
    arguments.append(f"options: {'KeyedOptions' if operation.keyed else 'RequestOptions'} = {{}}")
    call = [f'method: "{operation.method}"', f"path: {_path(operation)}"]
    if takes_query:
        call.append("query")
    if operation.body is not None:
        call.append("body")
    if operation.form:
        call.append("form")
    if operation.keyed:
        call.append("keyed: true")
    if operation.accept:
        call.append(f'accept: "{operation.accept}"')
    text = f"{operation.summary}. {' '.join(operation.description.split())}".replace("*/", "* /")
    return [
        f"  /** {text} */",
        f"  {camel(operation.name)}({', '.join(arguments)}): {answer} {{",
        f"    return this.{send}({{ {', '.join(call)} }}, options);",
        "  }",
    ]


def _answer(operation: Operation) -> tuple[str, str]:
    if operation.item is not None:
        return f"Pages<{type_of(operation.item)}>", "pages"
    if operation.answer is not None:
        return f"Promise<{type_of(operation.answer)}>", "json"
    if operation.accept:
        return "Promise<Download>", "download"
    return "Promise<void>", "nothing"


def _members(parameters: list[Parameter] | tuple[Parameter, ...], *, absent: str = "") -> str:
    """The members of an object type. `absent` is a further type that optional members may have, such as `null`."""
    parts = []
    for each in parameters:
        kind = "FileInput" if each.schema.get("format") == "binary" else type_of(each.schema)
        name = each.name if each.name.isidentifier() else json.dumps(each.name)
        if absent and not each.required:
            kind += f" | {absent}"
        parts.append(f"{name}{'' if each.required else '?'}: {kind}")
    return "{ " + "; ".join(parts) + " }"


def _path(operation: Operation) -> str:
    path = operation.path
    for each in operation.path_parameters:
        path = path.replace(f"{{{each.name}}}", f"${{encodeURIComponent({camel(each.name)})}}")
    return f"`{path}`" if operation.path_parameters else json.dumps(path)


_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def type_of(schema: Json) -> str:
    """The TypeScript type of a schema."""
    if "$ref" in schema:
        return f'Schemas["{schema["$ref"].rpartition("/")[2]}"]'
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(type_of(part) for part in schema[union]))
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"({type_of(schema.get('items', {}))})[]"
    if kind == "string" and schema.get("format") == "date-time":
        return "string | Date"
    return _PLAIN.get(str(kind), "Record<string, unknown>")
