"""`GET /v1/health*`: the running build, and whether it and its database work. No credentials, any Host."""

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

# --- Probes of the health routes: whether the database answers, and whether it is prepared for this build.

DATABASE_DEADLINE_SECONDS = 1.0
READINESS_DEADLINE_SECONDS = 3.0

_prober = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")
_readiness_prober = ThreadPoolExecutor(max_workers=1, thread_name_prefix="readiness")
"""A separate thread, because reading the migrations can take seconds."""
_migrated = False


def database_answers() -> bool:
    """Whether the database answers a query within a second. Covers refused, hanging and exhausted connections."""
    future = _prober.submit(_query)
    try:
        return future.result(DATABASE_DEADLINE_SECONDS)
    except FutureTimeout:
        future.cancel()
        return False


def readiness() -> dict[str, bool]:
    """Check whether a process may receive requests: the database, every migration, partitions for today."""
    future = _readiness_prober.submit(_readiness)
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
    """Whether all migrations of this build are applied. Cached once true, because the check is slow."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated


# --- `GET /v1/health*`: no credentials, any Host.
#
# The listener answers these routes (`web/routes.py`). The views exist only for the OpenAPI document.


def health() -> Reply:
    """200 while the database answers, otherwise 503. The answer takes less than two seconds."""
    return _report(db=database_answers())


def live() -> Reply:
    """200 from any process that can answer. Does not query the database."""
    return _report()


def ready() -> Reply:
    """200 while the database answers with all migrations and today's partitions in place, otherwise 503."""
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
    """A view without authentication."""

    tag = "Health"
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    throttle_classes: list[Any] = []


class HealthView(OpenView):
    """For load balancers."""

    @extend_schema(
        operation_id="health",
        summary="Check that the service is up",
        description="Answers 200 while the database answers, and 503 otherwise. The operation needs no credentials.",
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
        description="Answers 200 as long as the process can answer, whatever the state of the database. A supervisor "
        "can use it to decide whether to restart a process.",
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
        description="Answers 200 when the database answers and has all migrations and partitions, and 503 otherwise.",
        auth=[],
        responses={200: ReadyOut, 503: ReadyOut},
    )
    def get(self, request: Request) -> HttpResponse:
        raise AnsweredByListener
