"""The parts of the OpenAPI document that drf-spectacular cannot see in the views.

Every operation gets the bearer scheme, X-Service-Tenant for platform keys, the service's headers and its error
responses (specification 7). Operations that call the Graph API also get Meta's errors. The other hooks are `names.py`,
`examples.py`, `gateway/upstream/contract/bodies.py` and `webhooks/events/contract.py`. The document is served at
`/v1/openapi.json` and committed as `docs/openapi.json`. A test compares the two.
"""

from typing import Any, Literal

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from rest_framework.serializers import FileField

from gateway.api.authentication import TENANT_HEADER, TenantCaller, declared_scope
from gateway.api.deprecation import deprecation_of
from gateway.api.errors import error_kinds
from gateway.api.pagination import NewestFirst

UPSTREAM_TAGS = frozenset({"Flows", "Numbers", "Messages", "Media", "Templates", "Sandbox"})
"""Tags of operations that call the Graph API. Errors of Meta pass through with their status."""

BODIES_IN_METAS_FORM = frozenset({"TestInboundIn"})
"""Serializers whose bodies may have other members too. The simulator validates such bodies like Meta."""

ERRORS = {
    "400": "`invalid_request`: the request fails validation. `details.fields` names each wrong field.",
    "401": "`unauthorized`: the credentials are missing or invalid.",
    "403": "The credentials do not allow the request: `forbidden`, `tenant_not_approved` or `tenant_suspended`.",
    "404": "`not_found`: the object does not exist, or belongs to another business.",
    "409": "The state of the object does not allow the request: `conflict`, `number_not_connected`, "
    "`idempotency_conflict` or `invoice_not_payable`.",
    "408": "`request_timeout`: the headers or the body arrived too slowly.",
    "413": "`payload_too_large`: the body is too large.",
    "414": "`uri_too_long`: the URL is longer than 16 KiB.",
    "415": "`unsupported_media_type`: the operation does not accept this content type.",
    "422": "`idempotency_conflict` or `webhook_verify_failed`.",
    "429": "Too many calls: `rate_limited`, `too_many_in_flight`, or WhatsApp's own throttling. Wait for the time in "
    "`Retry-After`.",
    "431": "`headers_too_large`: the headers of the request are too large.",
    "500": "`internal_error`: the service failed.",
    "502": "`meta_unreachable`: WhatsApp gave no usable answer, so the outcome is not known. On `/v1/billing`: "
    "`payment_provider_unreachable` or `payment_provider_refused`.",
    "503": "`service_unavailable`: the database cannot be reached. A message was not sent, another change may have "
    "been made. On `/v1/billing` also `billing_disabled`.",
}

_SERVICE_ERROR = {
    "type": "object",
    "required": ["source", "error", "request_id"],
    "properties": {
        "source": {"type": "string", "description": "The name of the service.", "not": {"const": "meta"}},
        "error": {
            "type": "object",
            "required": ["code", "message", "details", "hint", "doc_url"],
            "properties": {
                "code": {"$ref": "#/components/schemas/ErrorCode"},
                "message": {"type": "string", "description": "What is wrong."},
                "details": {"type": ["object", "null"], "additionalProperties": True},
                "hint": {"type": "string", "description": "What the caller can do about it."},
                "doc_url": {
                    "type": "string",
                    "format": "uri",
                    "description": "The address of the page that explains this code.",
                },
            },
        },
        "request_id": {"type": ["string", "null"], "pattern": "^req_"},
    },
}
_UPSTREAM_ERROR = {
    "type": "object",
    "description": "An error in WhatsApp's answer. `error` is WhatsApp's own; the service adds the other members.",
    "required": ["source"],
    "properties": {
        "source": {
            "type": "string",
            "const": "meta",
            "description": "Always `meta`: the error is Meta's, not the service's.",
        },
        "hint": {
            "type": "string",
            "description": "What went wrong, and how to repair it. Absent for an unknown code.",
        },
        "doc_url": {
            "type": "string",
            "format": "uri",
            "description": "The address of the page that explains this code. Absent for an unknown code.",
        },
        "request_id": {
            "type": ["string", "null"],
            "pattern": "^req_",
            "description": "The id of the request, for questions to support; null when there is none.",
        },
        "error": {
            "type": "object",
            "description": "The error, byte for byte as Meta wrote it.",
            "additionalProperties": True,
            "properties": {
                "message": {
                    "type": "string",
                    "description": "Meta's message: the error code in brackets and a short name of the error.",
                },
                "type": {
                    "type": "string",
                    "description": "Meta's name for the kind of error, such as `OAuthException`.",
                },
                "code": {
                    "type": "integer",
                    "description": "Meta's error code. Programs should decide by this code.",
                },
                "error_subcode": {
                    "type": "integer",
                    "description": "Meta's more precise code. Absent when Meta gives none.",
                },
                "error_data": {
                    "description": "Meta's details of the error. `details` is the most useful sentence."
                },
                "fbtrace_id": {
                    "type": "string",
                    "description": "Meta's id of the call. Meta's support asks for it.",
                },
            },
        },
    },
    "additionalProperties": True,
}


_UPSTREAM_PASSED = "An error in WhatsApp's answer, passed through with WhatsApp's status."
_ERROR_DESCRIPTIONS = {*ERRORS.values(), _UPSTREAM_PASSED}


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """API keys and console tokens, as the only security scheme of the document."""

    target_class = "gateway.api.authentication.BearerTokens"
    match_subclasses = True
    name = "bearer"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key (`wb_live_…`, `wb_test_…`) or a console session token (`wbc_…`).",
        }


class ServiceSchema(AutoSchema):
    """An operation with the parts that all operations share."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """The operation. If the operation is for tenants' keys, `x-scope` names the required scope."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None and self._is_of_a_tenant() and (scope := declared_scope(self.view)):
            operation["x-scope"] = scope.value
        return operation

    def get_description(self) -> str:  # type: ignore[override]  # DRF types an older signature
        """Raise LookupError, because each operation must declare its description. A view's docstring describes all its
        operations, and would be wrong for one.
        """
        raise LookupError(f"{self.get_operation_id()} has no description.")

    def is_deprecated(self) -> bool:
        """Whether the operation is declared as deprecated (`gateway.api.deprecation`)."""
        return deprecation_of(self.view) is not None

    def get_tags(self) -> list[str]:
        """The tag of the view."""
        return [self.view.tag]  # type: ignore[attr-defined]

    def _is_of_a_tenant(self) -> bool:
        return any(isinstance(permission, TenantCaller) for permission in self.view.get_permissions())

    def _get_parameters(self) -> list[dict[str, Any]]:
        parameters: list[dict[str, Any]] = super()._get_parameters()
        if self.is_page():
            known = {parameter["name"] for parameter in parameters}
            paging = NewestFirst().get_schema_operation_parameters(self.view)
            parameters += [parameter for parameter in paging if parameter["name"] not in known]
        if self._is_of_a_tenant():
            parameters.append(
                {
                    "in": "header",
                    "name": TENANT_HEADER,
                    "schema": {"type": "string", "format": "uuid"},
                    "description": "The id of the business to act on. Required with a platform key.",
                }
            )
        return parameters

    def _map_serializer_field(self, field: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        """Declare a file as bytes, because the service does not accept a URL instead."""
        if isinstance(field, FileField):
            return {"type": "string", "format": "binary"}
        return super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        """A response (`…Out`) has every member of its serializer, except those declared with `required=False`.

        REST framework derives `required` from the model. It makes a column with a default optional, which is right only
        for requests.
        """
        schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if direction == "response" and type(serializer).__name__.endswith("Out"):
            absent = {name for name, field in serializer._declared_fields.items() if may_be_absent(field)}
            schema["required"] = sorted(schema.get("properties", {}).keys() - absent)
        return schema

    def is_page(self) -> bool:
        return getattr(self.view, "action", None) == "list" and getattr(self.view, "is_paged", True)

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        responses: dict[str, Any] = super()._get_response_bodies(direction)
        for answer in responses.values():
            for content in answer.get("content", {}).values():
                if content.get("schema", {}).get("type") == "array":
                    content["schema"] = self._list_of(content["schema"])
        statuses = {"400", "408", "413", "414", "431", "500"}
        if self.get_auth():
            statuses |= {"401", "403", "404", "429", "503"}
        if self.method in {"POST", "PUT", "PATCH", "DELETE"}:
            statuses |= {"401", "403", "409", "415", "422", "429", "503"}
        upstream = bool(UPSTREAM_TAGS.intersection(self.get_tags()))
        codes = sorted({kind.code for kind in error_kinds()})
        self._component(
            "ErrorCode",
            {
                "type": "string",
                "enum": codes,
                "description": "The code of the error. `/errors` explains each code.",
            },
        )
        service_error = self._component("ServiceError", _SERVICE_ERROR)
        body: dict[str, Any] = service_error.ref
        if "Billing" in self.get_tags():
            statuses |= {"502"}
        if upstream:
            statuses |= {"502"}
            # Order matters: generated clients try Meta's error first, and the PHP client accepts only the `source` of
            # the last schema.
            body = {"anyOf": [self._component("UpstreamError", _UPSTREAM_ERROR).ref, service_error.ref]}
        for status in sorted(statuses):
            responses.setdefault(
                status,
                {"description": ERRORS[status], "content": {"application/json": {"schema": body}}},
            )
        if upstream:
            for statuses_of_upstream in ("4XX", "5XX"):
                responses[statuses_of_upstream] = {
                    "description": _UPSTREAM_PASSED,
                    "content": {"application/json": {"schema": body}},
                }
        return responses

    def _list_of(self, items: dict[str, Any]) -> dict[str, Any]:
        """The schema of a list, an object {data, next_cursor} (specification 4)."""
        return NewestFirst().get_paginated_response_schema(items)

    def _component(self, name: str, schema: dict[str, Any]) -> ResolvedComponent:
        component = ResolvedComponent(  # type: ignore[no-untyped-call]
            name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema
        )
        if component not in self.registry:
            self.registry.register(component)
        return self.registry[component]


def may_be_absent(field: Any) -> bool:
    """Whether a response may lack this declared field. Fields of a model are always present, because a column has a
    value.
    """
    return field._kwargs.get("required") is False and "default" not in field._kwargs


_ERROR_NAMES = {
    "400": "InvalidRequest",
    "401": "Unauthorized",
    "403": "Forbidden",
    "404": "NotFound",
    "409": "Conflict",
    "408": "RequestTimeout",
    "413": "PayloadTooLarge",
    "414": "UriTooLong",
    "415": "UnsupportedMediaType",
    "422": "Unprocessable",
    "429": "TooManyRequests",
    "431": "HeadersTooLarge",
    "500": "InternalError",
    "502": "BadGateway",
    "503": "Unavailable",
    "4XX": "UpstreamRefused",
    "5XX": "UpstreamFailed",
}
_HEADERS: dict[str, dict[str, Any]] = {
    "X-Service-Request-Id": {
        "description": "The id of this request, for questions to support.",
        "schema": {"type": "string", "pattern": "^req_"},
    },
    "Server-Timing": {
        "description": "`wb`: milliseconds spent in the service. `meta`: milliseconds spent waiting for WhatsApp.",
        "schema": {"type": "string"},
    },
    "X-Service-Error-Source": {
        "description": "The source of the error: `meta`, or the name of the service.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "The number of seconds to wait before the request is repeated.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "RateLimit-Limit": {
        "description": "The number of calls that the business can make at once (its burst).",
        "schema": {"type": "integer", "minimum": 0},
    },
    "RateLimit-Remaining": {
        "description": "The number of calls that the business can still make at once.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "RateLimit-Reset": {
        "description": "The number of seconds until the whole burst is available again.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Idempotent-Replayed": {
        "description": "`true`: the answer is that of an earlier request with this Idempotency-Key or `client_ref`.",
        "schema": {"type": "string", "const": "true"},
    },
}


def shared_parts(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: move error responses and headers to the components, and let operations refer to them."""
    components = result["components"]
    components["headers"] = _HEADERS
    errors: dict[str, Any] = components.setdefault("responses", {})
    for operations in result["paths"].values():
        for operation in operations.values():
            operation.setdefault("security", [])
            for status, answer in operation["responses"].items():
                _add_headers(operation, status, answer)
                if (name := _ERROR_NAMES.get(status)) and answer.get("description") in _ERROR_DESCRIPTIONS:
                    body = answer["content"]["application/json"]
                    body["example"] = _example_of(status)
                    if "anyOf" in body["schema"]:
                        name += "OrUpstream"
                    errors[name] = answer
                    operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    components["responses"] = dict(sorted(errors.items()))
    return result


def _example_of(status: str) -> dict[str, Any]:
    """The body of the first error with this status, or for 4XX and 5XX the first error of that class."""
    kinds = sorted(error_kinds(), key=lambda kind: (kind.status, kind.code))
    kind = next(kind for kind in kinds if str(kind.status).startswith(status.rstrip("X")))
    return {
        "source": settings.SERVICE_NAME,
        "error": {
            "code": kind.code,
            "message": kind.message,
            "details": None,
            "hint": kind.hint,
            "doc_url": f"https://gateway.example/errors#{kind.code}",
        },
        "request_id": "req_01M6AYX330E008000000000001",
    }


def _add_headers(operation: dict[str, Any], status: str, answer: dict[str, Any]) -> None:
    names = ["X-Service-Request-Id", "Server-Timing"]
    if not status.startswith("2"):
        names.append("X-Service-Error-Source")
    elif "429" in operation["responses"]:
        names += ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]
    if status in {"429", "503"} and answer.get("description") in _ERROR_DESCRIPTIONS:
        names.append("Retry-After")
    keyed = any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", []))
    if (keyed and status.startswith("2")) or (operation["operationId"], status) == ("create_batch", "200"):
        names.append("Idempotent-Replayed")
    answer["headers"] = answer.get("headers", {}) | {
        name: {"$ref": f"#/components/headers/{name}"} for name in names
    }


def closed_bodies(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: a JSON body in the service's own form forbids members that its schema does not name."""
    schemas = result["components"]["schemas"]
    for operations in result["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name and name not in BODIES_IN_METAS_FORM:
                schemas[name]["additionalProperties"] = False
    return result


def any_json(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: remove the second null that drf-spectacular adds to a schema that already allows null.

    `readOnly` is removed too. Requests and responses have their own schemas and do not need it, and oapi-codegen makes
    pointers of such members.
    """
    plain: dict[str, Any] = _without_second_null(result)
    return plain


def _without_second_null(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_second_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("oneOf") == [{}, {"type": "null"}]:
        node = {name: value for name, value in node.items() if name != "oneOf"}
    if isinstance(kinds := node.get("type"), list):
        node = {**node, "type": list(dict.fromkeys(kinds))}
    return {
        name: _without_second_null(value)
        for name, value in node.items()
        if (name, value) != ("readOnly", True)
    }
