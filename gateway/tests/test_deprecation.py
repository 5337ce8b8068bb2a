"""A deprecated operation is marked in each answer and in the contract, and works for another year."""

from datetime import date
from typing import Any

import pytest
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from gateway.api.deprecation import deprecated
from gateway.api.errors import NotFound
from gateway.api.openapi.schema import ServiceSchema
from gateway.api.viewsets import ResourceViewSet

SINCE, SUNSET = date(2027, 1, 10), date(2028, 1, 10)


class Things(ResourceViewSet):
    tag = "Things"
    is_paged = False
    authentication_classes = ()
    permission_classes = (AllowAny,)

    def list(self, _request: Any) -> Response:
        """Answers without the headers of a deprecation."""
        return Response([])

    @deprecated(since=SINCE, sunset=SUNSET, guide="changelog/")
    def retrieve(self, _request: Any, pk: str) -> Response:
        """Answers with the headers of a deprecation."""
        if pk == "0":
            raise NotFound
        return Response({})


def answer(action: str, **path: str) -> Any:
    return Things.as_view({"get": action})(APIRequestFactory().get("/v1/things"), **path)


@pytest.mark.parametrize(("pk", "status"), [("1", 200), ("0", 404)])
def test_each_answer_of_a_deprecated_operation_says_so(settings: Any, pk: str, status: int) -> None:
    settings.BASE_URL = "https://gateway.example"
    response = answer("retrieve", pk=pk)
    assert response.status_code == status
    assert response["Deprecation"] == "@1799539200"
    assert response["Sunset"] == "Mon, 10 Jan 2028 00:00:00 GMT"
    assert (
        response["Link"] == '<https://gateway.example/docs/changelog/>; rel="deprecation"; type="text/html"'
    )


def test_the_other_operations_say_nothing() -> None:
    assert not {"Deprecation", "Sunset", "Link"} & set(answer("list").headers)


@pytest.mark.parametrize(("action", "marked"), [("list", False), ("retrieve", True)])
def test_the_contract_marks_it(action: str, marked: bool) -> None:
    schema = ServiceSchema()
    schema.view = Things(action=action)
    assert schema.is_deprecated() is marked


def test_a_sunset_within_twelve_months_is_an_error() -> None:
    deprecated(since=SINCE, sunset=date(2028, 1, 10), guide="changelog/")
    for sunset in (date(2027, 12, 1), date(2028, 1, 9)):
        with pytest.raises(ValueError, match="12 months"):
            deprecated(since=SINCE, sunset=sunset, guide="changelog/")
