"""The operations of the OpenAPI document for the SDK generators: grouped, named, with typed parts."""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

FORMER_GROUPS = {"Test world": "Sandbox"}
"""Names that groups had in the SDKs' first release, with the current names. Method names omit the words of both names.
"""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A value that a caller gives: part of the path, the query or a form."""

    name: str
    schema: Json
    required: bool
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of the API."""

    id: str
    group: str
    """The tag, e.g. `Connect sessions`."""
    name: str
    """The operation id without the words of its group: `list_events` → `list`."""
    method: str
    path: str
    summary: str
    description: str
    path_parameters: tuple[Parameter, ...]
    query: tuple[Parameter, ...]
    body: Json | None
    """Schema of the JSON body."""
    body_required: bool
    body_example: Any
    """The first example of the JSON body. None without an example."""
    form: tuple[Parameter, ...]
    """Fields of an upload. One of them is the file."""
    answer: Json | None
    """Schema of a JSON answer. None when the answer is bytes or empty."""
    accept: str | None
    """The content type of an answer that is not JSON."""
    item: Json | None
    """Schema of one item, when the answer is a list."""
    keyed: bool
    """Whether the operation takes an Idempotency-Key, so that it can be repeated with the same key."""
    is_open: bool
    """Whether the operation needs no credentials."""
    summary_of_group: str


def read(contract: Json) -> dict[str, list[Operation]]:
    """The operations by group. Groups and operations are in the order of the document."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    about = {tag["name"]: tag["description"] for tag in contract["tags"]}
    for path, operations in contract["paths"].items():
        for method, operation in operations.items():
            group = operation["tags"][0]
            groups[group].append(_Reader(contract).operation(method.upper(), path, operation, about[group]))
    for operations_of_group in groups.values():
        names = [operation.name for operation in operations_of_group]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"Two operations of a group would be called {twice}.")
    return dict(sorted(groups.items()))


class _Reader:
    """Reads operations of one document."""

    def __init__(self, contract: Json) -> None:
        self._contract = contract

    def operation(self, method: str, path: str, source: Json, about: str) -> Operation:
        parameters = source.get("parameters", [])
        contents = source.get("requestBody", {}).get("content", {})
        form = contents.get("multipart/form-data", {}).get("schema")
        answer, accept = self._answer(source)
        fields = self._form(form) if form else ()
        item = None
        if answer is not None:
            members = self._resolved(answer).get("properties", {})
            if members.keys() <= {"data", "next_cursor"} and members.get("data", {}).get("type") == "array":
                item = members["data"]["items"]
        return Operation(
            id=source["operationId"],
            group=source["tags"][0],
            name=method_name(source["operationId"], source["tags"][0]),
            method=method,
            path=path,
            summary=source["summary"],
            description=source["description"],
            path_parameters=tuple(_parameter(each) for each in parameters if each["in"] == "path"),
            query=tuple(
                _parameter(each)
                for each in parameters
                if each["in"] == "query"
                and not (item is not None and each["name"] == "cursor")
                and each["name"] not in {field.name for field in fields}
            ),
            body=contents.get("application/json", {}).get("schema"),
            body_required=bool(source.get("requestBody", {}).get("required")),
            body_example=_first_example(contents.get("application/json", {})),
            form=fields,
            answer=answer,
            accept=accept,
            item=item,
            keyed=any(each["name"] == "Idempotency-Key" for each in parameters),
            is_open=source.get("security") == [],
            summary_of_group=about,
        )

    def _answer(self, source: Json) -> tuple[Json | None, str | None]:
        """The schema of a successful JSON answer, or the content type of another successful answer."""
        contents = [
            answer["content"]
            for status, answer in source["responses"].items()
            if status.startswith("2") and answer.get("content")
        ]
        if not contents:
            return None, None
        first = next(iter(contents[0]))
        if first == "application/octet-stream" or "application/json" not in contents[0]:
            return None, first
        schemas: list[Json] = []
        for content in contents:
            if (schema := content["application/json"]["schema"]) not in schemas:
                schemas.append(schema)
        return (schemas[0] if len(schemas) == 1 else {"anyOf": schemas}), None

    def _form(self, schema: Json) -> tuple[Parameter, ...]:
        schema = self._resolved(schema)
        required = schema.get("required", [])
        return tuple(
            Parameter(
                name=name, schema=part, required=name in required, description=part.get("description", "")
            )
            for name, part in schema["properties"].items()
        )

    def _resolved(self, schema: Json) -> Json:
        while "$ref" in schema:
            found: Any = self._contract
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            schema = found
        return schema


def _parameter(source: Json) -> Parameter:
    return Parameter(
        name=source["name"],
        schema=source["schema"],
        required=bool(source.get("required")),
        description=source.get("description", ""),
    )


def _first_example(content: Json) -> Any:
    examples = [each["value"] for each in content.get("examples", {}).values()]
    return examples[0] if examples else content.get("example")


def method_name(operation_id: str, group: str) -> str:
    """The operation id without its group's words, such as `list_webhook_deliveries` of `Webhooks` → `list_deliveries`.
    The whole id if no word would be left.
    """
    names = [group, *(former for former, today in FORMER_GROUPS.items() if today == group)]
    words = " ".join(names).lower().split()
    known = {*words, *(word.removesuffix("s") for word in words)}
    left = [word for word in operation_id.split("_") if word not in known]
    return "_".join(left) or operation_id


def snake(group: str) -> str:
    """`Connect sessions` → `connect_sessions`."""
    return re.sub(r"\W+", "_", group.lower())


def pascal(group: str) -> str:
    """`Connect sessions` → `ConnectSessions`."""
    return "".join(word.capitalize() for word in re.split(r"\W+|_", group))


def camel(name: str) -> str:
    """`list_deliveries` → `listDeliveries`."""
    first, *rest = re.split(r"[_\W]+", name)
    return first.lower() + "".join(word.capitalize() for word in rest)
