"""`GET /v1/health*`: which build this is, and whether it and its database are well. No credentials, any Host."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from gateway.api import probes

Report = tuple[int, dict[str, Any]]
"""An HTTP status and a body."""


def health() -> Report:
    """200 while the database answers, 503 when it does not, in under two seconds."""
    ok = probes.database_answers()
    return 200 if ok else 503, {"ok": ok, "sha": settings.SERVICE_SHA, "db": _word(ok)}


def live() -> Report:
    """200 from a process that answers at all; asks nothing of the database."""
    return 200, {"ok": True, "sha": settings.SERVICE_SHA}


def ready() -> Report:
    """200 while the database answers, is migrated for this build and has the partitions of today; else 503."""
    found = probes.readiness()
    ok = all(found.values())
    parts = {name: _word(is_well) for name, is_well in found.items()}
    return 200 if ok else 503, {"ok": ok, "sha": settings.SERVICE_SHA, **parts}


def _word(is_well: bool) -> str:
    return "ok" if is_well else "error"


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
    def get(self, request: Request) -> Response:
        status, body = health()
        return Response(body, status=status)


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
    def get(self, request: Request) -> Response:
        status, body = live()
        return Response(body, status=status)


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
    def get(self, request: Request) -> Response:
        status, body = ready()
        return Response(body, status=status)
