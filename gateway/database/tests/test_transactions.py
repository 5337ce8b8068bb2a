"""Guard of network calls: none is made inside a database transaction. Work after a commit."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import transaction

from gateway.database.transactions import NetworkInTransactionError, after_commit, assert_no_transaction
from gateway.outbound.client import get_once


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction() -> None:
    assert_no_transaction()
    with transaction.atomic():
        pass
    assert_no_transaction()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("durable", [False, True])
def test_inside_of_a_transaction(durable: bool) -> None:
    with transaction.atomic(durable=durable), pytest.raises(NetworkInTransactionError, match="commit first"):
        assert_no_transaction()


@pytest.mark.django_db
def test_the_transaction_around_a_test_does_not_count() -> None:
    assert transaction.get_connection().in_atomic_block
    assert_no_transaction()
    with transaction.atomic(), pytest.raises(NetworkInTransactionError):
        assert_no_transaction()
    with transaction.atomic(), transaction.atomic(), pytest.raises(NetworkInTransactionError):
        assert_no_transaction()
    assert_no_transaction()


@pytest.mark.django_db
def test_what_runs_on_commit_is_outside(django_capture_on_commit_callbacks: object) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        transaction.on_commit(assert_no_transaction)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("around", [transaction.atomic, nullcontext], ids=["in a transaction", "without"])
def test_work_after_the_commit_that_fails_fails_nothing_else(around: Callable[[], Any]) -> None:
    def fail() -> None:
        raise ValueError

    done: list[int] = []
    with around():
        for work in (fail, lambda: done.append(1)):
            after_commit(work)
    assert done == [1]


@pytest.mark.django_db
def test_synchronous_calls_are_checked() -> None:
    with transaction.atomic(), pytest.raises(NetworkInTransactionError):
        get_once("https://receiver.test/", {}, allow_private=False)
