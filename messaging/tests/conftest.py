"""Fixtures of the messaging tests. The simulator plays Meta."""

import pytest

from messaging.batches import runner
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant
from tests.simulated import RunningSimulator, SimulatedAccount


@pytest.fixture(autouse=True)
def _no_lingering_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a runner end as soon as it has nothing to run."""
    monkeypatch.setattr(runner, "LINGER_SECONDS", 0.0)


def connected_number(
    tenant: Tenant, account: SimulatedAccount, *, environment: str = "live", **values: object
) -> PhoneNumber:
    """A tenant's connected number on an account of the simulator, as it is after onboarding."""
    row, _ = BusinessAccount.objects.get_or_create(
        waba_id=account.waba_id,
        defaults={
            "tenant": tenant,
            "environment": environment,
            "access_token": account.access_token,
            "subscribed": True,
        },
    )
    display = account.display_phone_numbers[0]
    return PhoneNumber.objects.create(
        **{
            "account": row,
            "tenant": tenant,
            "environment": environment,
            "phone_number_id": account.phone_number_id,
            "display_phone_number": display,
            "digits": "".join(filter(str.isdigit, display)),
            "registered": True,
            "connection_state": PhoneNumber.State.CONNECTED,
            "ever_connected": True,
            **values,
        }
    )


@pytest.fixture
def account(simulator: RunningSimulator) -> SimulatedAccount:
    """A new account at the simulator."""
    return simulator.account()


@pytest.fixture
def number(tenant: Tenant, account: SimulatedAccount) -> PhoneNumber:
    """A connected live number of `tenant`."""
    return connected_number(tenant, account)
