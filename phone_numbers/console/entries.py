"""Numbers in the console: the entry in the navigation, the first step, and what the home page warns of."""

from datetime import timedelta
from uuid import UUID

from django.urls import reverse

from gateway.clock import now
from gateway.roles import Area
from phone_numbers.connection.details import explained
from phone_numbers.connection.state import token_end
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.console import first_steps
from tenants.console.first_steps import FirstStep
from tenants.console.frame import TEST, HomeWarning, Page, Section, register, warns
from tenants.models import Tenant

TOKEN_WARNING = timedelta(days=7)
MOST_WARNINGS = 5

register(
    Page("Test phone", "console_phone", "/console/phone", Section.TRY, 20),
    Page("Numbers", "console_numbers", "/console/numbers", Section.MESSAGES, 40),
)


def _can_test(tenant_id: UUID) -> bool:
    """Whether a number of the test world is connected; the first comes by itself."""
    numbers = PhoneNumber.objects.for_tenant(tenant_id).filter(environment=TEST)
    return numbers.filter(connection_state=PhoneNumber.State.CONNECTED).exists()


first_steps.register(
    FirstStep(
        step="number_connected",
        title="Connect a number",
        text="Through the platform's own sign-up, in a few minutes.",
        button="Connect a number",
        url_name="console_numbers",
        order=20,
        tested=_can_test,
    )
)


@warns(Area.INTEGRATION)
def warnings(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """Numbers that were taken away or lost their token, and tokens that end soon."""
    numbers = PhoneNumber.objects.for_tenant(tenant.id).filter(
        environment=environment, connection_state=PhoneNumber.State.DISCONNECTED
    )
    found = [
        HomeWarning(
            f"{number.display_phone_number or number.phone_number_id} cannot send. "
            f"{explained(number.connection_detail).reason}",
            "See the number",
            reverse("console_number", args=[number.phone_number_id]),
            "bad",
        )
        for number in numbers.order_by("-id")[:MOST_WARNINGS]
    ]
    accounts = BusinessAccount.objects.for_tenant(tenant.id).filter(
        environment=environment, token_invalid_at__isnull=True
    )
    for account in accounts.defer("access_token").order_by("-id")[:MOST_WARNINGS]:
        ends = token_end(account)
        if ends is not None and ends - now() < TOKEN_WARNING:
            text = (
                f"The token of account {account.waba_id} ends on {ends:%d %B} (UTC). Connect it again before."
            )
            found.append(HomeWarning(text, "See the numbers", reverse("console_numbers")))
    return found
