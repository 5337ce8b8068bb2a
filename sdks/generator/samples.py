"""Code samples: one call of the API (method, path, body) in six languages, for the reference and the guides.

The samples in Python and TypeScript use the SDKs. The others use only the language's standard library. Tests compile
the samples.
"""

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from generator.operations import Operation, camel, snake
from generator.python_code import argument, method

BASE = "https://gateway.example"
FILE = "photo.jpg"
FILE_TYPE = "image/jpeg"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_HERE = "$BASE_URL"
_HEADERS = {"Authorization", "Content-Type", "Idempotency-Key"}
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z_]*)\}?")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A call. `path` begins with a slash and includes the query. `body` is JSON. An upload has `fields`."""

    method: str
    path: str
    body: Any = None
    fields: dict[str, str] | None = None
    key: str | None = None
    """The Idempotency-Key."""

    @property
    def url(self) -> str:
        """The URL of the call. A placeholder in the path becomes a name such as `ENDPOINT_ID`."""
        return BASE + _PLACEHOLDER.sub(lambda found: found[1].upper(), self.path)

    @property
    def json(self) -> str | None:
        """The body as indented JSON."""
        return None if self.body is None else json.dumps(self.body, indent=2, ensure_ascii=False)


def parsed(command: str) -> Sample | None:
    """The call of a curl command in the guides. None for a text that is not a single call of the API.

    Shell variables such as `$FROM` become `FROM`, a placeholder for the reader's own value.
    """
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError:
        return None
    is_one = "\n" not in _QUOTED.sub("", command.replace("\\\n", " ")).strip()
    if words[:1] != ["curl"] or not is_one:
        return None
    given: dict[str, list[str]] = {"-X": [], "-H": [], "-d": [], "-F": [], "url": []}
    rest = iter(words[1:])
    for word in rest:
        if word in {"-s", "-S", "-sS"}:
            continue
        if word in given and word != "url":
            given[word].append(next(rest, ""))
        elif word.startswith(_HERE):
            given["url"].append(word.removeprefix(_HERE))
        else:
            return None
    headers = dict(header.split(": ", 1) for header in given["-H"])
    if len(given["url"]) != 1 or len(given["-d"]) > 1 or headers.keys() - _HEADERS:
        return None
    fields = None
    if given["-F"]:
        fields = dict(field.split("=", 1) for field in given["-F"])
        if not fields.pop("file", "").startswith("@") or any(
            value.startswith("@") for value in fields.values()
        ):
            return None
    try:
        body = json.loads(_filled(given["-d"][0])) if given["-d"] else None
    except json.JSONDecodeError:
        return None
    return Sample(
        method=given["-X"][0] if given["-X"] else "POST" if body is not None or fields is not None else "GET",
        path=_filled(given["url"][0]),
        body=body,
        fields={name: _filled(value) for name, value in fields.items()} if fields is not None else None,
        key=headers.get("Idempotency-Key"),
    )


def message(text: str) -> Sample | None:
    """The call that sends a message whose JSON is in a guide. None for other JSON."""
    try:
        body = json.loads(_filled(text))
    except json.JSONDecodeError:
        return None
    is_message = (
        isinstance(body, dict)
        and {"type", "from"} <= body.keys()
        and "id" not in body
        and not {"to", "recipient"}.isdisjoint(body)
    )
    return Sample(method="POST", path="/v1/messages", body=body) if is_message else None


def _filled(text: str) -> str:
    return _VARIABLE.sub(r"\1", text)


def tabs(sample: Sample, groups: dict[str, list[Operation]], *, curl: str | None = None) -> list[str]:
    """The call in six languages, as the lines of a tabbed block of Markdown. `curl` is the guide's own curl command.

    Raises ValueError for a call that is not an operation of the API.
    """
    operation, arguments = _operation(sample, groups)
    return [
        *_tab("curl", "sh", curl or _curl(sample)),
        *_tab("Python", "python", _python(sample, operation, arguments)),
        *_tab("TypeScript", "ts", _typescript(sample, operation, arguments)),
        *_tab("PHP", "php", _php(sample)),
        *_tab("Go", "go", _go(sample)),
        *_tab("Java", "java", _java(sample)),
    ]


def _operation(sample: Sample, groups: dict[str, list[Operation]]) -> tuple[Operation, list[str]]:
    """The operation of a call, and the values in the path. Raises ValueError for a call that is not an operation."""
    path = sample.path.partition("?")[0]
    candidates = [
        each for operations in groups.values() for each in operations if each.method == sample.method
    ]
    # Paths with fewer placeholders are tried first, because they match more exactly.
    for operation in sorted(candidates, key=lambda each: each.path.count("{")):
        pattern = re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(operation.path))
        if found := re.fullmatch(pattern, path):
            values = dict(zip(_PLACEHOLDER.findall(operation.path), found.groups(), strict=True))
            # The order of the method's arguments can differ from the order in the path.
            in_order = [values[each.name] for each in operation.path_parameters]
            return operation, [value.strip("{}").upper() if value[0] == "{" else value for value in in_order]
    raise ValueError(f"{sample.method} {path} is no operation.")


def _query(sample: Sample) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in sample.path.partition("?")[2].split("&") if pair)
    return {name: value for name, _, value in pairs}


def _tab(title: str, language: str, code: str) -> list[str]:
    lines = (f"    {line}".rstrip() for line in code.splitlines())
    return [f'=== "{title}"', "", f"    ```{language}", *lines, "    ```", ""]


def _curl(sample: Sample) -> str:
    head = "curl" if sample.method == "GET" else f"curl -X {sample.method}"
    lines = [f'{head} "{sample.url}"', '-H "Authorization: Bearer $API_KEY"']
    if sample.key is not None:
        lines.append(f'-H "Idempotency-Key: {sample.key}"')
    if sample.fields is not None:
        lines += [f"-F {name}={value}" for name, value in sample.fields.items()]
        lines.append(f'-F "file=@{FILE};type={FILE_TYPE}"')
    elif sample.json is not None:
        lines += ['-H "Content-Type: application/json"', "-d '" + sample.json.replace("'", "'\\''") + "'"]
    return " \\\n  ".join(lines)


def _python(sample: Sample, operation: Operation, values: list[str]) -> str:
    given = [json.dumps(value) for value in values]
    imports = []
    if sample.fields is not None:
        imports = ["from pathlib import Path", ""]
        given += [f'file=Path("{FILE}")']
        given += [f"{argument(name)}={json.dumps(value)}" for name, value in sample.fields.items()]
    elif sample.body is not None:
        given.append(_python_literal(sample.body))
    given += [f"{argument(name)}={_typed(operation, name, value)}" for name, value in _query(sample).items()]
    if sample.key is not None:
        given.append(f"idempotency_key={json.dumps(sample.key)}")
    call = f"client.{snake(operation.group)}.{method(operation.name)}({', '.join(given)})"
    lines = [
        *imports,
        "from whabuzz import Whabuzz",
        "",
        f'client = Whabuzz(base_url="{BASE}")  # the key: WHABUZZ_API_KEY',
    ]
    if operation.item is not None:
        lines += [f"for found in {call}:", "    print(found)"]
    elif operation.answer is not None:
        lines.append(f"print({call})")
    elif operation.accept:
        lines.append(f'{call}.save("file")')
    else:
        lines.append(call)
    return "\n".join(lines)


def _typed(operation: Operation, name: str, value: str) -> str:
    """A value of the query as a literal of Python and TypeScript."""
    schema = next((each.schema for each in operation.query if each.name == name), {"type": "integer"})
    return value if schema.get("type") == "integer" else json.dumps(value)


def _python_literal(value: Any, indent: str = "") -> str:
    inner = indent + "    "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(key)}: {_python_literal(each, inner)}," for key, each in value.items()]
        return "\n".join(["{", *rows, f"{indent}}}"])
    if isinstance(value, list) and value:
        rows = [f"{inner}{_python_literal(each, inner)}," for each in value]
        return "\n".join(["[", *rows, f"{indent}]"])
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _typescript(sample: Sample, operation: Operation, values: list[str]) -> str:
    given = [json.dumps(value) for value in values]
    imports = []
    if sample.fields is not None:
        imports = ['import { openAsBlob } from "node:fs";']
        fields = [f"{name}: {json.dumps(value)}" for name, value in sample.fields.items()]
        content = f'await openAsBlob("{FILE}", {{ type: "{FILE_TYPE}" }})'
        fields.insert(0, f'file: {{ name: "{FILE}", content: {content} }}')
        given.append("{ " + ", ".join(fields) + " }")
    elif sample.json is not None:
        given.append(sample.json)
    if query := _query(sample):
        pairs = [f"{name}: {_typed(operation, name, value)}" for name, value in query.items()]
        given.append("{ " + ", ".join(pairs) + " }")
    if sample.key is not None:
        given.append(f"{{ idempotencyKey: {json.dumps(sample.key)} }}")
    call = f"client.{camel(operation.group)}.{camel(operation.name)}({', '.join(given)})"
    lines = [
        *imports,
        'import { Whabuzz } from "whabuzz";',
        "",
        f'const client = new Whabuzz({{ apiKey: process.env.WHABUZZ_API_KEY!, baseUrl: "{BASE}" }});',
    ]
    if operation.item is not None:
        lines += [f"for await (const found of {call}) {{", "  console.log(found);", "}"]
    elif operation.answer is not None:
        lines.append(f"console.log(await {call});")
    else:
        lines.append(f"await {call};")
    return "\n".join(lines)


def _php(sample: Sample) -> str:
    lines = [
        "<?php",
        f"$call = curl_init('{sample.url}');",
        "curl_setopt_array($call, [",
        f"    CURLOPT_CUSTOMREQUEST => '{sample.method}',",
        "    CURLOPT_RETURNTRANSFER => true,",
    ]
    headers = ["'Authorization: Bearer ' . getenv('API_KEY')"]
    if sample.key is not None:
        headers.append(f"'Idempotency-Key: {sample.key}'")
    if sample.fields is not None:
        fields = [f"'{name}' => '{value}'" for name, value in sample.fields.items()]
        parts = ", ".join([*fields, f"'file' => new CURLFile('{FILE}', '{FILE_TYPE}')"])
        lines.append(f"    CURLOPT_POSTFIELDS => [{parts}],")
    elif sample.json is not None:
        headers.append("'Content-Type: application/json'")
        lines += ["    CURLOPT_POSTFIELDS => <<<'JSON'", *sample.json.splitlines(), "JSON,"]
    lines += [f"    CURLOPT_HTTPHEADER => [{', '.join(headers)}],", "]);"]
    lines += ["echo curl_exec($call), ' ', curl_getinfo($call, CURLINFO_RESPONSE_CODE);"]
    return "\n".join(lines)


def _go(sample: Sample) -> str:
    imports, before, body, kind = ["fmt", "io", "net/http", "os"], [], "nil", None
    if sample.fields is not None:
        imports += ["bytes", "mime/multipart", "net/textproto"]
        before = [
            "\tvar form bytes.Buffer",
            "\tparts := multipart.NewWriter(&form)",
            *(f'\tparts.WriteField("{name}", "{value}")' for name, value in sample.fields.items()),
            f'\tfile, err := os.ReadFile("{FILE}")',
            "\tif err != nil {",
            "\t\tpanic(err)",
            "\t}",
            "\tpart, _ := parts.CreatePart(textproto.MIMEHeader{",
            f'\t\t"Content-Disposition": {{`form-data; name="file"; filename="{FILE}"`}},',
            f'\t\t"Content-Type":        {{"{FILE_TYPE}"}},',
            "\t})",
            "\tpart.Write(file)",
            "\tparts.Close()",
        ]
        body, kind = "&form", "parts.FormDataContentType()"
    elif sample.json is not None:
        imports.append("strings")
        before = ["\tbody := strings.NewReader(`" + sample.json.replace("`", '` + "`" + `') + "`)"]
        body, kind = "body", '"application/json"'
    lines = [
        "package main",
        "",
        "import (",
        *(f'\t"{name}"' for name in sorted(imports)),
        ")",
        "",
        "func main() {",
    ]
    lines += before
    lines.append(f'\trequest, err := http.NewRequest("{sample.method}", "{sample.url}", {body})')
    lines += ["\tif err != nil {", "\t\tpanic(err)", "\t}"]
    lines.append('\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))')
    if sample.key is not None:
        lines.append(f'\trequest.Header.Set("Idempotency-Key", "{sample.key}")')
    if kind is not None:
        lines.append(f'\trequest.Header.Set("Content-Type", {kind})')
    lines += [
        "\tanswer, err := http.DefaultClient.Do(request)",
        "\tif err != nil {",
        "\t\tpanic(err)",
        "\t}",
        "\tdefer answer.Body.Close()",
        "\ttext, _ := io.ReadAll(answer.Body)",
        "\tfmt.Println(answer.Status, string(text))",
        "}",
    ]
    return "\n".join(lines)


def _java(sample: Sample) -> str:
    imports, before, publisher, kind = (
        ["URI", "http.HttpClient", "http.HttpRequest", "http.HttpResponse"],
        [],
        None,
        None,
    )
    if sample.fields is not None:
        before = [
            'var boundary = "----" + UUID.randomUUID();',
            "var form = new ByteArrayOutputStream();",
        ]
        for name, value in sample.fields.items():
            text = f'\\r\\nContent-Disposition: form-data; name=\\"{name}\\"\\r\\n\\r\\n{value}\\r\\n'
            before.append(f'form.writeBytes(("--" + boundary + "{text}").getBytes());')
        head = (
            f'\\r\\nContent-Disposition: form-data; name=\\"file\\"; filename=\\"{FILE}\\"'
            f"\\r\\nContent-Type: {FILE_TYPE}\\r\\n\\r\\n"
        )
        before += [
            f'form.writeBytes(("--" + boundary + "{head}").getBytes());',
            f'form.writeBytes(Files.readAllBytes(Path.of("{FILE}")));',
            'form.writeBytes(("\\r\\n--" + boundary + "--\\r\\n").getBytes());',
        ]
        publisher = "HttpRequest.BodyPublishers.ofByteArray(form.toByteArray())"
        kind = '"multipart/form-data; boundary=" + boundary'
    elif sample.json is not None:
        text = sample.json.replace("\\", "\\\\").replace('"""', '\\"""')
        before = ['var body = """', *(f"    {line}" for line in text.splitlines()), '    """;']
        publisher, kind = "HttpRequest.BodyPublishers.ofString(body)", '"application/json"'
    publisher = publisher or "HttpRequest.BodyPublishers.noBody()"
    lines = [f"import java.net.{name};" for name in imports]
    if sample.fields is not None:
        lines = ["import java.io.ByteArrayOutputStream;", *lines, "import java.nio.file.Files;"]
        lines += ["import java.nio.file.Path;", "import java.util.UUID;"]
    lines += ["", "public class Call {", "    public static void main(String[] arguments) throws Exception {"]
    lines += [f"        {line}" for line in before]
    lines += [
        f'        var request = HttpRequest.newBuilder(URI.create("{sample.url}"))',
        '            .header("Authorization", "Bearer " + System.getenv("API_KEY"))',
    ]
    if sample.key is not None:
        lines.append(f'            .header("Idempotency-Key", "{sample.key}")')
    if kind is not None:
        lines.append(f'            .header("Content-Type", {kind})')
    lines += [
        f'            .method("{sample.method}", {publisher})',
        "            .build();",
        "        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());",
        '        System.out.println(answer.statusCode() + " " + answer.body());',
        "    }",
        "}",
    ]
    return "\n".join(lines)
