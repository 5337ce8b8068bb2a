"""Look-up of a send's number and of a notification's owners."""

import pytest
from django.db import connection as database
from django.test.utils import CaptureQueriesContext

from gateway.api.errors import InvalidRequest
from phone_numbers import senders_and_owners
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant

pytestmark = pytest.mark.django_db


def add(
    tenant: Tenant, waba_id: str, phone_number_id: str, digits: str, environment: str = "live"
) -> PhoneNumber:
    account, _ = BusinessAccount.objects.get_or_create(
        waba_id=waba_id,
        defaults={"tenant": tenant, "environment": environment, "access_token": "EAAlookup"},
    )
    return PhoneNumber.objects.create(
        account=account,
        tenant=tenant,
        environment=environment,
        phone_number_id=phone_number_id,
        display_phone_number=f"+{digits}",
        digits=digits,
        pin="123456",
    )


@pytest.mark.parametrize("from_", ["20", "+919800000001", "919800000001"])
def test_from_is_an_id_or_e164_in_one_query(tenant: Tenant, from_: str) -> None:
    add(tenant, "10", "20", "919800000001")
    with CaptureQueriesContext(database) as queries:
        found = senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_=from_)
    assert len(queries) == 1
    assert found is not None
    assert (found.phone_number_id, found.waba_id, found.token) == ("20", "10", "EAAlookup")
    assert "EAAlookup" not in repr(found)


@pytest.mark.parametrize("from_", ["", "+", "++919800000001", "+20", "Asha", "91 98000 00001", "２０"])
def test_what_names_no_number_finds_none(tenant: Tenant, from_: str) -> None:
    add(tenant, "10", "20", "919800000001")
    assert senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_=from_) is None


def test_numbers_of_others_and_of_the_other_environment_are_not_found(
    tenant: Tenant, other_tenant: Tenant
) -> None:
    add(other_tenant, "10", "20", "919800000001")
    add(tenant, "11", "21", "919800000002", environment="test")
    for from_ in ("20", "+919800000001", "21", "+919800000002"):
        assert senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_=from_) is None


def test_of_two_rows_with_the_same_digits_the_connected_one_sends(tenant: Tenant) -> None:
    old = add(tenant, "10", "20", "919800000001")
    add(tenant, "10", "21", "919800000001")
    newest = senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_="+919800000001")
    assert newest is not None
    assert newest.phone_number_id == "21"
    PhoneNumber.objects.filter(pk=old.pk).update(connection_state="connected")
    connected = senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_="+919800000001")
    assert connected is not None
    assert connected.phone_number_id == "20"


def test_an_unreadable_token_of_another_row_does_not_stop_a_send(tenant: Tenant) -> None:
    add(tenant, "10", "20", "919800000001")
    add(tenant, "11", "21", "919800000001")
    with database.cursor() as cursor:
        cursor.execute("UPDATE numbers_businessaccount SET access_token = 'unreadable' WHERE waba_id = '10'")
    found = senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_="+919800000001")
    assert found is not None
    assert (found.phone_number_id, found.token) == ("21", "EAAlookup")


def test_an_id_wins_over_digits_that_look_alike(tenant: Tenant) -> None:
    add(tenant, "10", "919800000001", "15550001")
    other = add(tenant, "10", "20", "919800000001")
    PhoneNumber.objects.filter(pk=other.pk).update(connection_state="connected")
    by_id = senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_="919800000001")
    by_number = senders_and_owners.sender(tenant_id=tenant.id, environment="live", from_="+919800000001")
    assert by_id is not None
    assert by_number is not None
    assert (by_id.phone_number_id, by_number.phone_number_id) == ("919800000001", "20")


def test_routes_of_several_tenants_in_one_query(tenant: Tenant, other_tenant: Tenant) -> None:
    add(tenant, "10", "20", "919800000001")
    add(other_tenant, "11", "21", "919800000002")
    add(tenant, "12", "22", "919800000003", environment="test")
    with CaptureQueriesContext(database) as queries:
        routes = senders_and_owners.route(
            waba_ids=["10", "11", "12", "99"],
            phone_number_ids=["20", "22", "98"],
            environments=["live"],
            digits=["919800000002", "919800000003"],
        )
    assert len(queries) == 1
    assert {waba: route.tenant_id for waba, route in routes.accounts.items()} == {
        "10": tenant.id,
        "11": other_tenant.id,
    }
    assert set(routes.numbers) == {"20", "21"}
    assert routes.numbers["20"].waba_id == "10"
    assert routes.by_digits["11", "919800000002"].phone_number_id == "21"
    assert ("12", "919800000003") not in routes.by_digits


@pytest.mark.parametrize(
    ("detail", "hint"),
    [
        ("not_subscribed", "POST /v1/numbers/20/subscribe."),
        ("not_registered", "PIN: POST /v1/numbers/20/register."),
        ("deregistered", "again with its six-digit PIN: POST /v1/numbers/20/register."),
        ("no_verified_endpoint", "POST /v1/webhooks/{endpoint_id}/verify."),
        ("token_invalid", "POST /v1/connect-sessions."),
        ("account_removed", "POST /v1/connect-sessions."),
        ("account_restricted", "Meta's Business Manager."),
        ("something_new", "GET /v1/numbers/20 says why in connection_detail."),
    ],
)
def test_a_number_that_is_not_connected_says_what_repairs_it(tenant: Tenant, detail: str, hint: str) -> None:
    add(tenant, "10", "20", "919800000001")
    for state in ("pending", "disconnected"):
        PhoneNumber.objects.update(connection_state=state, connection_detail=detail)
        with pytest.raises(senders_and_owners.NumberNotConnected) as refused:
            senders_and_owners.connected_sender(tenant_id=tenant.id, environment="live", from_="20")
        assert refused.value.advice.endswith(hint)
        assert refused.value.details == {
            "phone_number_id": "20",
            "connection_state": state,
            "connection_detail": detail,
        }


def test_an_unknown_from_names_ten_numbers_that_the_key_may_use(tenant: Tenant, other_tenant: Tenant) -> None:
    def problem(within: set[str] | None = None) -> str:
        with pytest.raises(InvalidRequest) as refused:
            senders_and_owners.required_sender(
                tenant_id=tenant.id, environment="live", from_="404", within=within
            )
        details = refused.value.details
        assert details is not None
        return str(details["fields"]["from"][0])

    add(other_tenant, "11", "21", "919800000002")
    add(tenant, "12", "22", "919800000003", environment="test")
    assert problem() == "This business has no live number yet: connect one with POST /v1/connect-sessions."
    for serial in range(11):
        add(tenant, "10", f"3{serial:02}", f"9198000001{serial:02}")
    PhoneNumber.objects.filter(phone_number_id="301").update(display_phone_number="")
    listed = ", ".join(
        f"3{serial:02}" + ("" if serial == 1 else f" (+9198000001{serial:02})") for serial in range(10)
    )
    assert problem() == f"Not a number that this key sends from. It sends from: {listed}."
    assert problem({"310", "21"}).endswith("It sends from: 310 (+919800000110).")


def test_digits_name_the_newest_number_of_an_account(tenant: Tenant) -> None:
    """A number that was migrated keeps its old row."""
    for phone_number_id in ("29", "20"):
        add(tenant, "10", phone_number_id, "919800000001")
    routes = senders_and_owners.route(
        waba_ids=["10"], phone_number_ids=[], environments=["live"], digits=["919800000001"]
    )
    assert routes.by_digits["10", "919800000001"].phone_number_id == "20"
