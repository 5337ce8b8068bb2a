"""Races of accounts: two log-ins with one recovery code, and an approval during a correction of the application."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.db import connection

from gateway.api.errors import Conflict
from tenants import tenant_status
from tenants.credentials.log_in import check_second_factor
from tenants.models import SignUp, Tenant, User
from tenants.signup import sign_ups

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls: Callable[[], bool]) -> list[bool]:
    """Run the calls simultaneously, each with its own connection. Returns their results."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], bool]) -> bool:
        try:
            barrier.wait(timeout=10)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return sorted(pool.map(run, calls))


def test_a_recovery_code_works_once_for_all_who_send_it_together() -> None:
    user = User.objects.create_user("owner@shop.example", "a long enough password")
    code = RecoveryCodes.activate(user).generate_codes()[0]
    assert at_once(*[lambda: check_second_factor(user, code)] * 4) == [False, False, False, True]


def test_a_correction_that_meets_the_approval_never_takes_it_back() -> None:
    application = sign_ups.Application(
        company="Infosys Limited",
        website="https://www.infosys.com",
        tax_id="29AAACI1681G1ZL",
        tax_id_type="gstin",
        address="44 Electronics City",
        city="Bengaluru",
        state_code="29",
        pin_code="560100",
        phone="+919800000001",
    )
    tenant = Tenant.objects.create(name="Infosys", tax_id=application.tax_id)
    SignUp.objects.create(
        tenant=tenant,
        email="owner@infosys.com",
        company="Infosys",
        tax_id=application.tax_id,
        tax_id_type="gstin",
    )

    def approve() -> bool:
        tenant_status.approve(tenant_id=tenant.id)
        return True

    def correct() -> bool:
        try:
            sign_ups.apply_again(application, tenant_id=tenant.id)
        except Conflict:
            return False
        return True

    at_once(approve, correct)
    tenant.refresh_from_db()
    assert tenant.status == Tenant.Status.ACTIVE, "a correction never takes an approval back"
    assert tenant.approved_at is not None
