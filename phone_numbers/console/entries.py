"""Numbers in the console: the entry in the navigation, the first step, and what the home page warns of."""

from uuid import UUID

from django.db.models import Count, Max
from django.urls import reverse

from gateway.roles import Area
from phone_numbers.connection.details import explained
from phone_numbers.connection.state import token_end
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tokens import WARNING_DAYS, ending_within
from tenants.console import first_steps
from tenants.console.first_steps import FirstStep
from tenants.console.frame import TEST, HomeWarning, Page, Section, register, warns
from tenants.models import Tenant

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
    alike = numbers.values("connection_detail").annotate(
        count=Count("id"), phone_number_id=Max("phone_number_id"), shown=Max("display_phone_number")
    )
    found = [_cannot_send(**each) for each in alike.order_by("connection_detail")]
    accounts = BusinessAccount.objects.for_tenant(tenant.id).filter(
        ending_within(max(WARNING_DAYS)), environment=environment
    )
    for account in accounts.defer("access_token").order_by("-id")[:MOST_WARNINGS]:
        ends = f"ends on {token_end(account):%d %B} (UTC)"
        text = f"The token of account {account.waba_id} {ends}. Connect it again before."
        found.append(HomeWarning(text, "See the numbers", reverse("console_numbers")))
    return found


def _cannot_send(
    *, connection_detail: str | None, count: int, phone_number_id: str, shown: str
) -> HomeWarning:
    """One warning for all numbers with the same reason: a token that died takes its whole account away."""
    reason = explained(connection_detail).reason
    if count > 1:
        text = f"{count} numbers cannot send, for the same reason: {reason[0].lower()}{reason[1:]}"
        return HomeWarning(text, "See the numbers", reverse("console_numbers"), "bad")
    page = reverse("console_number", args=[phone_number_id])
    return HomeWarning(f"{shown or phone_number_id} cannot send. {reason}", "See the number", page, "bad")
