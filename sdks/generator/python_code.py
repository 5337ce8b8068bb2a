"""Generate the resources of the Python SDK, synchronous and asynchronous, from the operations of the contract."""

import keyword
import re
import textwrap
from collections.abc import Iterable

from generator.operations import FORMER_GROUPS, Json, Operation, Parameter, pascal, snake

HEAD = '''"""{title} of the API, one method per operation. Generated from docs/openapi.json by `make sdks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from whabuzz import types
from whabuzz.calls import Call, File
from whabuzz.{module} import {imports}

'''


def module(groups: dict[str, list[Operation]], *, asynchronous: bool) -> str:
    """The source of the SDK's module `resources`, or `async_resources`."""
    names = ["Download", "Pages", "Resource", "Transport"]
    names = [f"Async{name}" for name in names] if asynchronous else names
    title = "Asynchronous resources" if asynchronous else "Resources"
    source = HEAD.format(
        title=title, module="async_transport" if asynchronous else "transport", imports=", ".join(names)
    )
    for group, operations in groups.items():
        source += "\n" + _resource(group, operations, asynchronous=asynchronous) + "\n"
    prefix = "Async" if asynchronous else ""
    source += f'\nclass {prefix}Resources:\n    """Every group of operations."""\n\n'
    source += f"    def __init__(self, transport: {prefix}Transport) -> None:\n"
    source += "".join(
        f"        self.{snake(group)} = {prefix}{pascal(group)}(transport)\n" for group in groups
    )
    for former, group in FORMER_GROUPS.items():
        source += f"        self.{snake(former)} = self.{snake(group)}  # deprecated\n"
    return source


def _resource(group: str, operations: list[Operation], *, asynchronous: bool) -> str:
    prefix = "Async" if asynchronous else ""
    lines = [
        f"class {prefix}{pascal(group)}({prefix}Resource):",
        f'    """{operations[0].summary_of_group}"""',
    ]
    for operation in operations:
        lines += ["", *_method(operation, asynchronous=asynchronous)]
    return "\n".join(lines) + "\n"


def _method(operation: Operation, *, asynchronous: bool) -> list[str]:
    prefix = "Async" if asynchronous else ""
    answer, send = _answer(operation, prefix)
    waits = asynchronous and send in {"_json", "_nothing"}
    positional = [f"{argument(each.name)}: str" for each in operation.path_parameters]
    if operation.body is not None:
        body = type_of(operation.body)
        positional.append(f"body: {body}" if operation.body_required else f"body: {body} | None = None")
    named = [_named(each) for each in sorted(operation.form, key=lambda part: not part.required)]
    named += [_named(each) for each in sorted(operation.query, key=lambda part: not part.required)]
    if operation.body is not None:
        named.append("extra_body: Mapping[str, Any] | None = None")
    if operation.keyed:
        named.append("idempotency_key: str | None = None")
    arguments = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    lines = [
        f"    {'async ' if waits else ''}def {method(operation.name)}({arguments}) -> {answer}:",
        *_docstring(operation),
        f"        {'return ' if send != '_json' else f'answer: {answer} = '}{'await ' if waits else ''}self.{send}(",
        "            Call(",
        f'                "{operation.method}",',
        f"                {_path(operation)},",
    ]
    if operation.query:
        pairs = [f'"{each.name}": {argument(each.name)}' for each in operation.query]
        lines.append(f"                query={{{', '.join(pairs)}}},")
    if operation.body is not None:
        lines += ["                body=body,", "                extra_body=extra_body,"]
    if operation.form:
        fields = [each for each in operation.form if not _is_file(each)]
        pairs = [f'"{each.name}": {argument(each.name)}' for each in fields]
        lines.append(f"                form={{{', '.join(pairs)}}},")
        lines += [f"                file={argument(each.name)}," for each in operation.form if _is_file(each)]
    if operation.keyed:
        lines += ["                keyed=True,", "                idempotency_key=idempotency_key,"]
    if operation.accept:
        lines.append(f'                accept="{operation.accept}",')
    lines += ["            )", "        )"]
    if send == "_json":
        lines.append("        return answer")
    return lines


def _answer(operation: Operation, prefix: str) -> tuple[str, str]:
    """The return type of a method, and the method of `Resource` that sends its call."""
    if operation.item is not None:
        return f"{prefix}Pages[{type_of(operation.item)}]", "_pages"
    if operation.answer is not None:
        return type_of(operation.answer), "_json"
    if operation.accept:
        return f"{prefix}Download", "_download"
    return "None", "_nothing"


def _docstring(operation: Operation) -> Iterable[str]:
    wrapped = textwrap.wrap(" ".join(operation.description.split()).replace("\\", "\\\\"), 100)
    yield f'        """{operation.summary}.'
    yield ""
    yield from (f"        {line}" for line in wrapped)
    yield '        """'


def _named(parameter: Parameter) -> str:
    kind = "File" if _is_file(parameter) else type_of(parameter.schema)
    if parameter.required:
        return f"{argument(parameter.name)}: {kind}"
    return f"{argument(parameter.name)}: {kind} | None = None"


def _is_file(parameter: Parameter) -> bool:
    return parameter.schema.get("format") == "binary"


def _path(operation: Operation) -> str:
    if not operation.path_parameters:
        return f'"{operation.path}"'
    names = ", ".join(f"{argument(each.name)}={argument(each.name)}" for each in operation.path_parameters)
    path = operation.path
    for each in operation.path_parameters:
        path = path.replace(f"{{{each.name}}}", f"{{{argument(each.name)}}}")
    return f'self._path("{path}", {names})'


def argument(name: str) -> str:
    """A parameter's name as a valid Python name, such as `from` → `from_`."""
    name = snake(name)
    return f"{name}_" if keyword.iskeyword(name) else name


def method(name: str) -> str:
    """An operation's name as a valid Python name."""
    return f"{name}_" if keyword.iskeyword(name) else name


_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def type_of(schema: Json) -> str:
    """The Python type of a schema."""
    if "$ref" in schema:
        return f"types.{schema['$ref'].rpartition('/')[2]}"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(type_of(part) for part in schema[union]))
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"Sequence[{type_of(schema.get('items', {}))}]"
    if kind == "string" and schema.get("format") == "date-time":
        return "str | datetime"
    return _PLAIN.get(str(kind), "dict[str, Any]")


# --- The synchronous version of a module. Only these words of the asynchronous source are replaced.
_WORDS = {
    "async def": "def",
    "async for": "for",
    "async with": "with",
    "await ": "",
    "asyncio.sleep": "time.sleep",
    "import asyncio\n": "import time\n",
    "__aiter__": "__iter__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aiter_": "iter_",
    "aread": "read",
    "aclose": "close",
    "Awaitable[None]": "None",
    "async_": "",
    # A synchronous client takes no asynchronous iterators. Its method opens a download at once, so that the method
    # itself raises the error for a missing file.
    "bodies_async": "bodies",
    " | AsyncIterable[Mapping[str, Any]]": "",
    "return AsyncDownload(self._transport, call)": "return Download(self._transport, call).__enter__()",
}
_CLASSES = re.compile(r"\bAsync(?=[A-Z])")


def synchronous(source: str) -> str:
    """The source of a module without asyncio."""
    note, _, code = source.partition('"""\n')
    for word, plain in _WORDS.items():
        code = code.replace(word, plain)
    return note.replace("asynchronous", "synchronous") + '"""\n' + _CLASSES.sub("", code)
