"""The base class of the API's viewsets. It checks the caller of each call first, then the body's length and the query.

An operation declares its query parameters with `extend_schema(parameters=…)`; a paged list adds `limit` and `cursor`.
The OpenAPI document uses the same declaration, so the documented parameters are the accepted ones. The base class adds
a hint to an error of Meta.
"""

from collections.abc import Hashable
from functools import cache
from typing import Any, ClassVar, cast

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.fields import ListField
from rest_framework.request import Request
from rest_framework.serializers import Serializer
from rest_framework.viewsets import ViewSet

from gateway.api.deprecation import deprecation_of
from gateway.api.errors import InvalidRequest, PayloadTooLarge
from gateway.api.limits import API_BODY_BYTES
from gateway.api.openapi.schema import ServiceSchema
from gateway.api.pagination import NewestFirst
from gateway.api.validation import did_you_mean
from gateway.meta_errors import explained

Declared = dict[str, bool]
"""The names of an operation's query parameters, and whether each may be repeated."""


class DeclaredQuery:
    """Mixin that rejects a body over the limit with 413 and an undeclared query parameter with 400. It first checks the
    caller.
    """

    body_limit = API_BODY_BYTES
    refuses_large_bodies = True
    """The middleware leaves this rejection to the view, so that the request log has the caller."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        too_large: PayloadTooLarge | None = getattr(request._request, "too_large", None)
        if too_large is not None:
            raise too_large
        action = getattr(self, "action", None)
        if request.query_params and action is not None:
            _refuse_undeclared(request, declared_query(cast("Hashable", type(self)), action))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the service's explanation to an error of Meta."""
        answer = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        if answer.get("X-Service-Error-Source") == "meta" and isinstance(answer, HttpResponse):
            answer.content = explained(answer.content, getattr(request, "request_id", None))
        if (deprecation := deprecation_of(self)) is not None:
            for name, value in deprecation.headers().items():
                answer[name] = value
        return answer


class AnsweredByListener(RuntimeError):
    """An operation that the listener answers (`web/routes.py`). Its view exists only for the OpenAPI document."""


class ResourceViewSet(DeclaredQuery, ViewSet):
    """A viewset of `/v1`. `is_paged` says whether its list has a cursor."""

    tag: ClassVar[str]
    """The tag of the viewset's operations in the OpenAPI document."""
    is_paged: ClassVar[bool] = True


def _refuse_undeclared(request: Request, declared: Declared) -> None:
    problems: dict[str, str] = {}
    for name, values in request.query_params.lists():
        if name not in declared:
            known = (
                f"The known ones are: {', '.join(sorted(declared))}."
                if declared
                else "This operation takes none."
            )
            problems[name] = f"This query parameter is unknown.{did_you_mean(name, declared)} {known}"
        elif len(values) > 1 and not declared[name]:
            problems[name] = "This query parameter may be given only once."
        elif not all(values):
            problems[name] = "This query parameter is empty: leave it out, or give it a value."
        elif any("\0" in value for value in values):
            problems[name] = "This query parameter contains the character U+0000."
    if problems:
        raise InvalidRequest.of(**problems)


@cache
def declared_query(view_class: Any, action: str) -> Declared:
    """The query parameters of an action of a viewset."""
    schema_class = getattr(getattr(view_class, action), "kwargs", {}).get("schema", ServiceSchema)
    view = view_class(action=action, request=None, kwargs={})
    schema = schema_class()
    schema.view = view
    declared: Declared = {}
    for parameter in schema.get_override_parameters():
        if isinstance(parameter, OpenApiParameter):
            if parameter.location == OpenApiParameter.QUERY:
                declared[parameter.name] = bool(parameter.many)
        else:
            serializer = parameter if isinstance(parameter, Serializer) else parameter()
            declared |= {name: isinstance(field, ListField) for name, field in serializer.fields.items()}
    paging = (
        NewestFirst().get_schema_operation_parameters(view)
        if schema.is_page()
        else schema._get_pagination_parameters()
    )
    declared |= {parameter["name"]: False for parameter in paging}
    return declared
