"""What the Graph API reports of tokens and numbers, as facts of the service."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest

from gateway.upstream import numbers, oauth
from gateway.upstream.calls import GraphAnswer

WANTED = oauth.MESSAGING


def reported(**data: Any) -> oauth.TokenFacts:
    return oauth.token_facts(GraphAnswer(200, orjson.dumps({"data": data}), {}, 1.0))


def granted(*targets: Any) -> list[dict[str, Any]]:
    """The wanted scope, granted once for each list of targets."""
    return [{"scope": WANTED, "target_ids": each} for each in targets]


@pytest.mark.parametrize(
    ("scopes", "opens", "opens_only"),
    [
        ([], False, False),
        ([{"scope": WANTED}], True, False),
        (granted(None), True, False),
        (granted([]), False, False),
        (granted(["1"]), True, True),
        (granted([1]), True, True),
        (granted(["1", "1"]), True, True),
        (granted(["1", "2"]), True, False),
        (granted(["2"]), False, False),
        (granted(["1"], ["2"]), True, False),
        (granted(["2"], None), True, False),
        ([{"scope": oauth.MANAGEMENT, "target_ids": ["1"]}], False, False),
        ([{"target_ids": ["1"]}], False, False),
        (["x", None, *granted(["1"])], True, True),
        ("x", False, False),
        (None, False, False),
    ],
)
def test_a_scope_opens_the_accounts_that_it_names_and_all_if_it_names_none(
    scopes: object, opens: bool, opens_only: bool
) -> None:
    facts = reported(granular_scopes=scopes)
    assert (facts.opens(WANTED, "1"), facts.opens_only(WANTED, "1")) == (opens, opens_only)


@pytest.mark.parametrize(("said", "valid"), [(True, True), (False, False), ("true", False), (1, False)])
def test_a_token_is_valid_only_where_meta_says_so(said: object, valid: bool) -> None:
    facts = reported(is_valid=said, app_id=900100200300400)
    assert (facts.valid, facts.app_id) == (valid, "900100200300400")
    for body in (b"{}", b'{"data":[]}', b"no JSON"):
        nothing = oauth.token_facts(GraphAnswer(200, body, {}, 1.0))
        assert (nothing.valid, nothing.app_id, nothing.granular_scopes) == (False, "", ())


@pytest.mark.parametrize(
    ("seconds", "moment"),
    [
        (1_793_500_000, datetime(2026, 11, 1, 2, 26, 40, tzinfo=UTC)),
        (1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (253_402_300_799, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        *((seconds, None) for seconds in (0, -1, 253_402_300_800, 1e9, "1793500000", None)),
    ],
)
def test_the_ends_of_a_token_and_of_its_data_access_are_moments_or_never(
    seconds: object, moment: datetime | None
) -> None:
    for facts in (reported(expires_at=seconds), reported(expires_at=seconds, data_access_expires_at=5)):
        assert facts.expires_at == moment
    assert reported(data_access_expires_at=seconds).data_access_expires_at == moment
    assert reported(expires_at=5).data_access_expires_at is None


REGISTERED = ("CONNECTED", "FLAGGED", "RESTRICTED", "RATE_LIMITED")
NOT_REGISTERED = ("DISCONNECTED", "UNVERIFIED", "BANNED", "DELETED", "MIGRATED")
UNKNOWN = ("PENDING", "A_NEW_ONE", None)


@pytest.mark.parametrize(
    ("platform", "status", "registered"),
    [
        *(("CLOUD_API", status, True) for status in REGISTERED),
        *(("CLOUD_API", status, None) for status in UNKNOWN),
        *((None, status, None) for status in (*REGISTERED, *UNKNOWN)),
        *((each, status, False) for status in NOT_REGISTERED for each in ("CLOUD_API", None)),
        *((each, "CONNECTED", False) for each in ("ON_PREMISE", "NOT_APPLICABLE")),
    ],
)
def test_a_number_is_registered_by_its_platform_and_status(
    platform: str | None, status: str | None, registered: bool | None
) -> None:
    assert numbers.registered({"platform_type": platform, "status": status}) is registered


def test_metas_view_of_a_number_fills_its_columns_and_leaves_out_the_rest() -> None:
    view = {
        "verified_name": "Asha",
        "quality_rating": "GREEN",
        "messaging_limit_tier": "TIER_1K",
        "throughput": {"level": "HIGH"},
        "name_status": "APPROVED",
        "display_phone_number": "+91 98000-00001",
    }
    columns = {**view, "throughput_level": "HIGH", "digits": "919800000001"}
    del columns["throughput"]
    assert numbers.number_columns({**view, "id": "1", "is_pin_enabled": True}) == columns
    for is_in_app in (True, False):
        assert numbers.number_columns({"is_on_biz_app": is_in_app}) == {"coexistence": is_in_app}
    for limits, tier in (
        ({"whatsapp_business_manager_messaging_limit": "TIER_10K"}, "TIER_10K"),
        (
            {"whatsapp_business_manager_messaging_limit": "TIER_10K", "messaging_limit_tier": "TIER_1K"},
            "TIER_1K",
        ),
    ):
        assert numbers.number_columns(limits) == {"messaging_limit_tier": tier}
    odd = dict.fromkeys([*view, "is_on_biz_app"], 5)
    assert numbers.number_columns(odd) == numbers.number_columns({}) == {}


@pytest.mark.parametrize(
    ("said", "moment"),
    [
        ("2026-11-01T07:06:41+0000", datetime(2026, 11, 1, 7, 6, 41, tzinfo=UTC)),
        (
            "2026-11-01T07:06:41+0530",
            datetime(2026, 11, 1, 7, 6, 41, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        ),
        *((said, None) for said in ("2026-11-01T07:06:41", "yesterday", 1_793_500_000, None)),
    ],
)
def test_the_time_of_the_last_registration_is_read_or_unknown(said: object, moment: datetime | None) -> None:
    assert numbers.onboarded_at({"last_onboarded_time": said}) == moment


@pytest.mark.parametrize(
    ("apps", "subscribed"),
    [
        ([{"id": "77"}], True),
        ([{"id": 77}], True),
        ([{"id": "78"}, {"id": "77"}], True),
        ([{"id": "78"}], False),
        ([{}, None], False),
        ([], False),
    ],
)
def test_an_account_is_subscribed_if_its_list_has_the_services_app(
    settings: Any, apps: list[Any], subscribed: bool
) -> None:
    settings.META_APP_ID = "77"
    rows = [{"whatsapp_business_api_data": app} for app in apps]
    answer = GraphAnswer(200, orjson.dumps({"data": rows}), {}, 1.0)
    assert numbers.Graph("live", "t").subscribed_to_us(answer) is subscribed
    settings.META_APP_ID, settings.SANDBOX_APP_ID = "1", "77"
    assert numbers.Graph("live", "t").subscribed_to_us(answer) is False
    assert numbers.Graph("test", "t").subscribed_to_us(answer) is subscribed
