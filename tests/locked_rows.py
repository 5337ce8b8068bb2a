"""Makes a test fail in which our code saves a row that it read without a lock.

Two processes that read and save the same row at once would lose one of the two changes. So `save` and `bulk_update`
need rows from `select_for_update`, or rows that this process has created. `WITHOUT_ITS_LOCK` lists the exceptions.
"""

import sys
from collections.abc import Iterator
from typing import Any

from django.db.models import Model, QuerySet
from django.db.models.query import ModelIterable

from tests.watched import found, frames, is_excepted, place

WITHOUT_ITS_LOCK = {
    "billing/payments/bank_transfers.py:deduct": "locks the invoice",
    "billing/payments/mandates.py:_store": "locks the tenant",
    "console/home.py:preferences": "writes only what the person chose",
    "console/personal_settings.py:person": "writes only what the person chose",
    "messaging/flows/endpoints.py:set_url": "locks the phone number",
    "messaging/message_templates/mirror.py": "locks the mirror",
    "tenants/admin.py:UserAdmin.save_model": "writes only what the staff member changed",
    "tenants/mail.py:deliver": "holds the lease of the mail",
    "tenants/signup/sign_ups.py:apply_again": "locks the tenant",
    "tenants/team/members.py:change_role": "locks the team",
}
"""The beginnings of the names of functions that save a row without a lock of its own, and why they may."""
_LOCKED = "_is_locked_by_this_process"


def _marked(read: Any) -> Any:
    def rows(self: Any) -> Iterator[Any]:
        for row in read(self):
            row.__dict__[_LOCKED] = self.queryset.query.select_for_update
            yield row

    return rows


def _without_lock(row: Model) -> str:
    """The function that writes an unlocked row. Empty if the row is locked, or if a library or a test writes it."""
    if row.__dict__.get(_LOCKED):
        return ""
    codes = (each.f_code for each in frames(sys._getframe(2)))
    writer = next(code for code in codes if "/django/db/" not in code.co_filename and code.co_name != "save")
    function = place(writer)
    return "" if not function or is_excepted(function, WITHOUT_ITS_LOCK) else function


def _watch(model: Any, rows_of: Any, query_set: Any) -> None:
    insert, update, update_many = model._do_insert, model._do_update, query_set.bulk_update

    def inserted(self: Any, *args: Any, **options: Any) -> Any:
        self.__dict__[_LOCKED] = True
        return insert(self, *args, **options)

    def updated(self: Any, *args: Any, **options: Any) -> Any:
        if function := _without_lock(self):
            found.append(f"{function} saves a {type(self).__name__} that it read without a lock")
        return update(self, *args, **options)

    def updated_many(self: Any, rows: Any, *args: Any, **options: Any) -> Any:
        for function in filter(None, map(_without_lock, rows := list(rows))):
            found.append(f"{function} saves rows of {self.model.__name__} that it read without a lock")
        return update_many(self, rows, *args, **options)

    rows_of.__iter__ = _marked(rows_of.__iter__)
    model._do_insert, model._do_update, query_set.bulk_update = inserted, updated, updated_many


_watch(Model, ModelIterable, QuerySet)
