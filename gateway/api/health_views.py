"""`GET /v1/health*`: the running build, and whether it and its database are well. No credentials, any Host."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from psycopg_pool import PoolTimeout
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from gateway.api.errors import Reply
from gateway.api.json import dumps
from gateway.api.viewsets import AnsweredByListener
from gateway.clock import now
from gateway.database import partitions

# --- Probes behind the health routes: does the database answer, and is it prepared for this build.

DATABASE_DEADLINE_SECONDS = 1.0
READINESS_DEADLINE_SECONDS = 3.0

_prober = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")
_migrated = False


def database_answers() -> bool:
    """Whether the database answers a query within a second, however it fails: refused, hanging, exhausted."""
    future = _prober.submit(_query)
    try:
        return future.result(DATABASE_DEADLINE_SECONDS)
    except FutureTimeout:
        future.cancel()
        return False


def readiness() -> dict[str, bool]:
    """Checks before a process may take requests: the database, every migration, partitions for today."""
    future = _prober.submit(_readiness)
    try:
        return future.result(READINESS_DEADLINE_SECONDS)
    except FutureTimeout:
        future.cancel()
        return {"db": False, "migrations": False, "partitions": False}


def _query() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, PoolTimeout):
        return False
    finally:
        connection.close()
    return True


def _readiness() -> dict[str, bool]:
    try:
        return {"db": True, "migrations": _is_migrated(), "partitions": partitions.covers(now().date())}
    except (DatabaseError, PoolTimeout):
        return {"db": False, "migrations": False, "partitions": False}
    finally:
        connection.close()


def _is_migrated() -> bool:
    """Whether no migration of this build is missing; remembered once it is true, because it takes long to find out."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated


# --- `GET /v1/health*`: which build this is, and whether it and its database are well. No credentials, any
# Host.
#
# The listener answers them (`web/routes.py`); the views are for the OpenAPI document.


def health() -> Reply:
    """200 while the database answers, 503 when it does not, in under two seconds."""
    return _report(db=database_answers())


def live() -> Reply:
    """200 from a process that answers at all; asks nothing of the database."""
    return _report()


def ready() -> Reply:
    """200 while the database answers, is migrated for this build and has the partitions of today; else 503."""
    return _report(**readiness())


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

    tag = "Health"
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    throttle_classes: list[Any] = []


class HealthView(OpenView):
    """For load balancers."""

    @extend_schema(
        operation_id="health",
        summary="Check that the service is up",
        description="Needs no credentials. 200 while the database answers, otherwise 503.",
        auth=[],
        responses={200: HealthOut, 503: HealthOut},
    )
    def get(self, request: Request) -> HttpResponse:
        raise AnsweredByListener


class LiveView(OpenView):
    """For supervisors that restart processes which no longer answer."""

    @extend_schema(
        operation_id="health_live",
        summary="Check that the process is alive",
        description="200 from every process that serves; asks nothing else. For supervisors that restart processes.",
        auth=[],
        responses=LiveOut,
    )
    def get(self, request: Request) -> HttpResponse:
        raise AnsweredByListener


class ReadyView(OpenView):
    """For load balancers that send traffic to a new process."""

    @extend_schema(
        operation_id="health_ready",
        summary="Check that the process is ready",
        description="200 once the database answers with every migration and partition in place, otherwise 503.",
        auth=[],
        responses={200: ReadyOut, 503: ReadyOut},
    )
    def get(self, request: Request) -> HttpResponse:
        raise AnsweredByListener
