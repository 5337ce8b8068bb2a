"""The API reference: every operation for customers is on one page, with samples that are valid code."""

import ast
import inspect
import json
import re

import pytest

from gateway.guides import reference
from tests.pages import ROOT
from tests.sdk_import import sdk_from


def pages() -> list[tuple[str, str, str]]:
    return reference.pages(ROOT / "docs/openapi.json")


def test_every_operation_of_customers_is_on_one_page_and_none_of_staff() -> None:
    contract = json.loads((ROOT / "docs/openapi.json").read_text())
    expected = sorted(
        f"**{method.upper()}** `{path}`"
        for path, operations in contract["paths"].items()
        for method, operation in operations.items()
        if not reference.STAFF_TAGS.intersection(operation["tags"])
    )
    shown = sorted(
        line for _, _, text in pages() for line in re.findall(r"^\*\*[A-Z]+\*\* `.*`$", text, re.MULTILINE)
    )
    assert shown == expected


def samples(language: str) -> list[str]:
    fence = re.compile(rf"^    ```{language}\n(.*?)^    ```", re.MULTILINE | re.DOTALL)
    return [
        re.sub(r"^    ", "", code, flags=re.MULTILINE)
        for _, _, text in pages()
        for code in fence.findall(text)
    ]


def test_python_samples_are_python() -> None:
    assert len(samples("python")) > 50
    for sample in samples("python"):
        ast.parse(sample)


@pytest.mark.parametrize("language", ["sh", "python", "ts", "php", "go", "java"])
def test_samples_of_uploads_name_the_files_type(language: str) -> None:
    """WhatsApp refuses a picture as `application/octet-stream`. The Python SDK takes the type from the name."""
    uploads = [sample for sample in samples(language) if "photo.jpg" in sample]
    assert len(uploads) >= 2
    assert all("image/jpeg" in sample or language == "python" for sample in uploads)


def test_python_samples_give_ids_in_the_order_of_the_methods_arguments() -> None:
    compared = 0
    with sdk_from(ROOT / "sdks/python/src") as sdk:
        client = sdk.Whabuzz("key", "http://127.0.0.1")
        for call in (node for sample in samples("python") for node in ast.walk(ast.parse(sample))):
            match call:
                case ast.Call(ast.Attribute(ast.Attribute(ast.Name("client"), group), name), args):
                    given = [each.value for each in args if isinstance(each, ast.Constant)]
                    taken = list(inspect.signature(getattr(getattr(client, group), name)).parameters)
                    assert given == [argument.upper() for argument in taken[: len(given)]], name
                    compared += len(given)
    assert compared > 30


@pytest.mark.parametrize("language", ["sh", "ts", "php", "go", "java"])
def test_each_operation_has_a_sample_in_each_language(language: str) -> None:
    assert len(samples(language)) == len(samples("python"))


def test_members_and_parameters_are_listed_with_type_and_need() -> None:
    (webhooks,) = [text for _, title, text in pages() if title == "Webhooks"]
    assert re.search(r"^\| `url` \| string.* \| required", webhooks, re.MULTILINE)
    assert re.search(r"^\| `limit` \| query \| integer \|", webhooks, re.MULTILINE)
