"""The package index. WhiteNoise serves the SDK's own page, which is not tested here."""

import pytest
from django.http import Http404
from django.test import RequestFactory

from gateway.guides.well_known import package_index


def test_what_the_sdk_needs_comes_from_pypi() -> None:
    answer = package_index(RequestFactory().get("/packages/simple/httpx/"), "httpx")
    assert (answer.status_code, answer["Location"]) == (302, "https://pypi.org/simple/httpx/")


@pytest.mark.parametrize("name", ["whabuzz", "Whabuzz"])
def test_the_sdk_never_comes_from_elsewhere(name: str) -> None:
    with pytest.raises(Http404):
        package_index(RequestFactory().get(f"/packages/simple/{name}/"), name)
