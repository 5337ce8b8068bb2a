"""Makes a test fail in which a statement reads or changes rows of tenants without naming the owner.

Each statement that our code runs in a test is read:

- A call of a tenant names the tenant, or the rows: by their ids or by another unique column.
- A statement that names a tenant names the environment too, if the table has one.

So a missing condition fails every test that runs its statement, also where no test has a neighbour's row.
`EVERYWHERE` lists the exceptions. Staff pages and the service's own tasks read the rows of all tenants.
"""

import re
import sys
from functools import cache, lru_cache
from types import CodeType, FrameType
from typing import Any

import psycopg
from django.apps import apps

from tests.watched import caller, found, frames, is_excepted

OF_STAFF = re.compile(r"(^|/)(admin|staff|management)(_\w+)?(/|\.py)")
CALLS_OF_STAFF = ("/admin", "/v1/admin", "/metrics", "/readyz")
BY_META = {"phone_number_id", "waba_id", "wa_id", "user_id", "template_id", "media_id", "message_id"}
"""Ids that callers choose. Another tenant may have a row with the same value."""
ONE_OWNER = "a number and its account have one owner in the whole service"
OF_SANDBOX = "the account of a sandbox is of one environment"
BOTH = "covers both environments"
EVERYWHERE = {
    "billing/invoices/documents.py:pdf": "the number of a document is unique",
    "billing/plan.py:terms_for": "the terms of all tenants",
    "console/connected_apps.py:app_list": BOTH,
    "console/customer_data.py:data_page": BOTH,
    "console/keys.py:_list_page": BOTH,
    "console/keys.py:_makers": BOTH,
    "console/search.py:_keys": BOTH,
    "messaging/batches/lifecycle.py:_known": "a client_ref is of one batch of both environments",
    "messaging/data_export.py:require_room": BOTH,
    "messaging/erasure.py:_erase": BOTH,
    "messaging/erasure.py:_customers": BOTH,
    "messaging/erasure.py:names_of": BOTH,
    "messaging/erasure.py:on_tenant_closing": BOTH,
    "messaging/erasure.py:scheduled_to": BOTH,
    "messaging/retention.py:delete_opt_outs": BOTH,
    "messaging/retention.py:_expunge_answers": BOTH,
    "messaging/message_templates/parameters.py:_Mirrored.__init__": ONE_OWNER,
    "messaging/message_templates/parameters.py:_Mirrored.is_fresh": ONE_OWNER,
    "phone_numbers/connection/state.py:_recompute": ONE_OWNER,
    "phone_numbers/connection/state.py:mark_number_connected": BOTH,
    "phone_numbers/connection/state.py:token_failed": ONE_OWNER,
    "phone_numbers/leaving.py:close": BOTH,
    "phone_numbers/leaving.py:make_way": ONE_OWNER,
    "phone_numbers/onboarding.py:_adopt_account": ONE_OWNER,
    "phone_numbers/onboarding.py:_adopt_number": ONE_OWNER,
    "phone_numbers/onboarding.py:numbers_allowed": ONE_OWNER,
    "phone_numbers/registration.py:add": ONE_OWNER,
    "phone_numbers/sandbox/control.py:add_number": OF_SANDBOX,
    "phone_numbers/sandbox/control.py:is_made": OF_SANDBOX,
    "phone_numbers/sandbox/control.py:make": OF_SANDBOX,
    "phone_numbers/tokens.py:question": ONE_OWNER,
    "tenants/connected_apps/connections.py:allow": BOTH,
    "tenants/connected_apps/connections.py:end_all": BOTH,
    "tenants/credentials/api_keys.py:made_by": BOTH,
    "tenants/signup/screening.py:_compared": "compares a sign-up with those of others",
    "tenants/team/members.py:_end_access": "deletes one person, with all that is theirs",
    "tenants/team/members.py:_keep_exports": BOTH,
    "tenants/views.py:_key_page": BOTH,
    "webhooks/delivery/retries_and_attempt_log.py:prune_answers": BOTH,
    "webhooks/events/retention.py:_move_events": BOTH,
    "webhooks/events/retention.py:in_batches": BOTH,
    "webhooks/events/search.py:search.<locals>.<lambda>": "only finds where the tenant's rows begin",
    "webhooks/events/search.py:search_deliveries": "only finds where the tenant's rows begin",
}
"""The beginnings of the names of functions whose statements cover more than one owner, and why."""

_WHERE = re.compile(r"\bWHERE\b.*", re.DOTALL)
_FROM = re.compile(r"\bFROM\b.*", re.DOTALL)
_NOT = re.compile(r"\bNOT \([^()]*\)")
_TABLE = re.compile(r'\b(?:FROM|JOIN|UPDATE|USING) "?(\w+)')
_LIST = re.compile(r"\bjson_to_recordset\(|\bunnest\(")
"""A list of rows from the caller, to which a statement may join other rows."""
_OF_ROWS = rf"(?!(?:tenant_id|{'|'.join(sorted(BY_META))})\b)(?:\w+_)?id"


@cache
def _condition(columns: str, has_list: bool) -> re.Pattern[str]:
    """A condition that compares one of these columns with a value. The column of a joined table is none, except that of
    a list.
    """
    value = r"[%$'\d]|SELECT|unnest" + (r"|\w+\.\w" if has_list else "")
    compared = r'"?\)?(?:::\w+)? *(?:=|IN|BETWEEN|LIKE) *(?:ANY)?[( ]*(?:ARRAY\[)?\(*'
    return re.compile(rf"\b(?:{columns}){compared}(?:{value})")


@cache
def owned_tables() -> dict[str, bool]:
    """The tables with rows of tenants, and whether a row belongs to an environment."""
    columns = {
        model._meta.db_table: {field.column for field in model._meta.local_fields}
        for model in apps.get_models()
    }
    return {table: "environment" in names for table, names in columns.items() if "tenant_id" in names}


@cache
def _unique_columns(tables: frozenset[str]) -> str:
    """The columns of these tables that identify a row."""
    unique = {
        field.column
        for model in apps.get_models()
        for field in model._meta.local_fields
        if model._meta.db_table in tables and (field.primary_key or field.unique)
    }
    return "|".join([_OF_ROWS, *sorted(filter(None, unique - BY_META))])


@lru_cache(maxsize=4096)
def missing(statement: str) -> str:
    """What a statement does not name: `tenant`, `environment`, or nothing."""
    tables = frozenset(_TABLE.findall(statement))
    owned = tables & owned_tables().keys()
    conditions = _FROM if statement.lstrip().startswith("SELECT") else _WHERE
    named = _NOT.sub("", named_in[0] if (named_in := conditions.search(statement)) else "")
    has_list = bool(_LIST.search(statement))
    if not owned or _condition(_unique_columns(tables), has_list).search(named):
        return ""
    if not _condition("tenant_id", has_list).search(named):
        return "tenant"
    has_environment = any(owned_tables()[table] for table in owned)
    return "environment" if has_environment and not _condition("environment", has_list).search(named) else ""


@cache
def _may_cover_several(function: str) -> bool:
    return bool(OF_STAFF.search(function.partition(":")[0])) or is_excepted(function, EVERYWHERE)


@cache
def _has_request(code: CodeType) -> bool:
    return "request" in {*code.co_varnames, *code.co_cellvars, *code.co_freevars}


def _is_call_of_tenant(frame: FrameType) -> bool:
    """Whether the statement is of an API call or a page that is not of staff."""
    for each in frames(frame):
        request = each.f_locals.get("request") if _has_request(each.f_code) else None
        if isinstance(path := getattr(request, "path", None), str):
            return not path.startswith(CALLS_OF_STAFF)
    return False


def unowned(statement: str) -> str:
    """The function that runs this statement, and what it misses. Empty if nothing is missing."""
    what = missing(statement)
    if not what:
        return ""
    frame = sys._getframe(2)
    function = caller(frame)
    if _may_cover_several(function) or (what == "tenant" and not _is_call_of_tenant(frame)):
        return ""
    return f"{function} names no {what}: {statement}"


def _watch(cursor: type[Any], name: str) -> None:
    execute = getattr(cursor, name)

    def watched(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        text = query.decode() if isinstance(query, bytes) else query
        if isinstance(text, str) and apps.models_ready and (unnamed := unowned(text)):
            found.append(unnamed)
        return execute(self, query, *args, **options)

    setattr(cursor, name, watched)


for _cursor in (psycopg.Cursor, psycopg.AsyncCursor):
    _watch(_cursor, "execute")
    _watch(_cursor, "executemany")
