"""The member `customer_hours`: hours of the day, in the customer's time zone, within which a message may be sent.

The area code of a phone number determines its time zone. A mobile number of most countries determines only the calling
code (data of Google's libphonenumber), and a business-scoped user id only the country (tz database). If several zones
are possible, the hours must be open in all of them. The hours of a batch must be open for all its customers. The
functions are pure: the caller passes the time.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, time, timedelta
from functools import cache
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import orjson
import phonenumbers
from phonenumbers.timezone import UNKNOWN_TIMEZONE, time_zones_for_number
from phonenumbers.tzdata import TIMEZONE_DATA

from gateway.api.errors import InvalidRequest
from gateway.api.query import phone_digits
from messaging.sending import outbound

MEMBER = outbound.CUSTOMER_HOURS
SEARCHED_DAYS = 3
"""How many local days, from today on, are searched for an open hour."""
AGAIN = timedelta(hours=1)
"""The wait before the next try if the hours of a message's zones do not overlap for part of the year, for example in
summer time.
"""
NO_HOURS = 'Must be two whole hours of a day, the first before the second, as {"from": 9, "to": 20}.'
NO_ZONE = (
    "This recipient's time zone is not known: write the number with `+` and its country code, or send it without "
    "`customer_hours`."
)
NEVER = "The hours never overlap in these customers' zones: make a batch for each country."


class CustomerHours(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hours from `opens` up to `closes`. They are open while the clocks of all `zones` are within the range."""

    opens: int = msgspec.field(name="from")
    closes: int = msgspec.field(name="to")
    zones: tuple[str, ...] = ()

    def stored(self) -> dict[str, Any]:
        """The hours as a JSON column stores them."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    def within(self, zones: Collection[str]) -> "CustomerHours":
        """The same hours in other time zones."""
        return msgspec.structs.replace(self, zones=tuple(sorted(zones)))

    def is_open(self, moment: datetime) -> bool:
        """Whether a message may be sent at a moment."""
        return all(self.opens <= moment.astimezone(_zone(name)).hour < self.closes for name in self.zones)

    def next_open(self, moment: datetime) -> datetime | None:
        """The first moment at which a message may be sent, at or after the given moment. None when the hours of the
        zones do not overlap.
        """
        begins = [moment]
        for name in self.zones:
            today = moment.astimezone(_zone(name)).date()
            for days in range(SEARCHED_DAYS):
                opening = datetime.combine(today + timedelta(days), time(self.opens), _zone(name))
                begins.append(opening.astimezone(UTC))
        return min((each for each in begins if each >= moment and self.is_open(each)), default=None)

    def first_open(self, moment: datetime) -> datetime:
        """`next_open` for a caller's request. Raises InvalidRequest when the hours of the zones do not overlap."""
        found = self.next_open(moment)
        if found is None:
            raise InvalidRequest.of(**{MEMBER: NEVER})
        return found


def hours_of(value: Any) -> CustomerHours:
    """Parse the hours in a request. The result has no zones yet. Raises InvalidRequest."""
    members = value if isinstance(value, dict) else {}
    opens, closes = members.get("from"), members.get("to")
    if members.keys() != {"from", "to"} or type(opens) is not int or type(closes) is not int:
        raise InvalidRequest.of(**{MEMBER: NO_HOURS})
    if not 0 <= opens < closes <= 24:
        raise InvalidRequest.of(**{MEMBER: NO_HOURS})
    return CustomerHours(opens, closes)


def restored(column: str | dict[str, Any] | None) -> CustomerHours | None:
    """Parse the hours in a JSON column, given as the ORM's value or as JSON text. None for an empty column."""
    if column is None:
        return None
    return msgspec.convert(orjson.loads(column) if isinstance(column, str) else column, CustomerHours)


def closed_until(hours: CustomerHours | None, moment: datetime) -> datetime | None:
    """When to try again if the hours are closed at a moment. None when they are open."""
    if hours is None or hours.is_open(moment):
        return None
    return hours.next_open(moment) or moment + AGAIN


def zones_of(recipient: str | None) -> tuple[str, ...]:
    """The time zones that a recipient may be in. The recipient is a phone number as the caller wrote it, or a user id.

    Empty when no zone is known, for example for a number without a country code.
    """
    if recipient is None or outbound.lacks_country_code(recipient):
        return ()
    if outbound.is_user_id(recipient):
        country = recipient[:2]
        # The tz database leaves out a few countries, such as Kosovo.
        return _by_country().get(country) or _of_code(phonenumbers.country_code_for_region(country))
    try:
        number = phonenumbers.parse(f"+{phone_digits(recipient)}")
    except phonenumbers.NumberParseException:
        return ()
    zones = tuple(time_zones_for_number(number))
    # A number outside its country's numbering plan, such as a Mexican WhatsApp id, may be anywhere in the country.
    return _of_code(number.country_code) if UNKNOWN_TIMEZONE in zones else zones


def country_code(digits: str) -> str:
    """The country code of a phone number in digits, such as 91. Empty when the number has none."""
    try:
        return str(phonenumbers.parse(f"+{digits}").country_code)
    except phonenumbers.NumberParseException:
        return ""


def _of_code(code: int | None) -> tuple[str, ...]:
    """The time zones of all countries that share a calling code."""
    return tuple(TIMEZONE_DATA.get(str(code), ()))


@cache
def _by_country() -> Mapping[str, tuple[str, ...]]:
    """The time zones of each country, by its two letters."""
    table = resources.files("tzdata").joinpath("zoneinfo/zone1970.tab").read_text("utf-8")
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in table.splitlines():
        if not line.startswith("#"):
            countries, _, name = line.split("\t")[:3]
            for country in countries.split(","):
                found[country].append(name)
    return {country: tuple(names) for country, names in found.items()}


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
