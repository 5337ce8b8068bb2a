"""`GET /v1/health*`: which build this is, and whether it and its database are well. No credentials, any Host."""

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from gateway.api import probes
from gateway.api.json import dumps
from gateway.api.reply import Reply


def health() -> Reply:
    """200 while the database answers, 503 when it does not, in under two seconds."""
    return _report(db=probes.database_answers())


def live() -> Reply:
    """200 from a process that answers at all; asks nothing of the database."""
    return _report()


def ready() -> Reply:
    """200 while the database answers, is migrated for this build and has the partitions of today; else 503."""
    return _report(**probes.readiness())


def _report(**parts: bool) -> Reply:
    ok = all(parts.values())
    headers = {"Content-Type": "application/json"}
    if not ok:
        headers["X-Service-Error-Source"] = settings.SERVICE_NAME
    words = {name: "ok" if is_well else "error" for name, is_well in parts.items()}
    return Reply(200 if ok else 503, headers, dumps({"ok": ok, "sha": settings.SERVICE_SHA, **words}))


class LiveOut(serializers.Serializer[dict[str, Any]]):
    ok = serializers.BooleanField()
    sha = serializers.CharField()


class HealthOut(LiveOut):
    db = serializers.ChoiceField(choices=["ok", "error"])


class ReadyOut(HealthOut):
    migrations = serializers.ChoiceField(choices=["ok", "error"])
    partitions = serializers.ChoiceField(choices=["ok", "error"])


class OpenView(APIView):
    """A view that asks nobody who they are."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    throttle_classes: list[Any] = []


class HealthView(OpenView):
    """For load balancers."""

    @extend_schema(
        operation_id="health",
        summary="Check that the service is up",
        description="Needs no credentials. 200 while the database answers, otherwise 503.",
        tags=["Health"],
        auth=[],
        responses={200: HealthOut, 503: HealthOut},
    )
    def get(self, request: Request) -> HttpResponse:
        return health().as_response()


class LiveView(OpenView):
    """For supervisors that restart processes which no longer answer."""

    @extend_schema(
        operation_id="health_live",
        summary="Check that the process is alive",
        description="200 from every process that serves; asks nothing else. For supervisors that restart processes.",
        tags=["Health"],
        auth=[],
        responses=LiveOut,
    )
    def get(self, request: Request) -> HttpResponse:
        return live().as_response()


class ReadyView(OpenView):
    """For load balancers that send traffic to a new process."""

    @extend_schema(
        operation_id="health_ready",
        summary="Check that the process is ready",
        description="200 once the database answers with every migration and partition in place, otherwise 503.",
        tags=["Health"],
        auth=[],
        responses={200: ReadyOut, 503: ReadyOut},
    )
    def get(self, request: Request) -> HttpResponse:
        return ready().as_response()
