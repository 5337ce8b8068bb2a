"""`GET /v1/health`: alive, which build, and whether the database answers."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from drf_spectacular.utils import extend_schema
from psycopg_pool import PoolTimeout
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

DATABASE_DEADLINE_SECONDS = 1.0

_prober = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")


def database_answers() -> bool:
    """Whether the database answers a query within a second, however it fails: refused, hanging, exhausted."""
    future = _prober.submit(_probe)
    try:
        return future.result(DATABASE_DEADLINE_SECONDS)
    except FutureTimeout:
        future.cancel()
        return False


def _probe() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, PoolTimeout):
        return False
    finally:
        connection.close()
    return True


class HealthOut(serializers.Serializer[dict[str, Any]]):
    ok = serializers.BooleanField()
    sha = serializers.CharField()
    db = serializers.ChoiceField(choices=["ok", "error"])


class HealthView(APIView):
    """No credentials; 200 while the database answers, 503 when it does not, in under two seconds."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    throttle_classes: list[Any] = []

    @extend_schema(
        operation_id="health", tags=["Health"], auth=[], responses={200: HealthOut, 503: HealthOut}
    )
    def get(self, request: Request) -> Response:
        ok = database_answers()
        return Response(
            {"ok": ok, "sha": settings.SERVICE_SHA, "db": "ok" if ok else "error"}, status=200 if ok else 503
        )
