"""`customer_hours`: a message goes only within these hours of the day, by the clock of its customer's zone.

The area code of a phone number determines its zone. Mobile numbers of most countries, and business-scoped user ids,
only determine a country (data of Google's libphonenumber). If several zones are possible, a message goes only while it
is within the hours in all of them. A batch goes only within the hours of all its customers. Pure functions: the caller
passes the time.
"""

from collections.abc import Collection
from datetime import UTC, datetime, time, timedelta
from functools import cache
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
"""How far ahead an open hour is searched: every zone's day begins within two days."""
AGAIN = timedelta(hours=1)
"""How soon a message is tried again if the hours of its zones do not overlap for a while, for example
in summer time.
"""
NO_HOURS = 'Must be two whole hours of a day, the first before the second, as {"from": 9, "to": 20}.'
NO_ZONE = (
    "This recipient's time zone is not known: write the number with `+` and its country code, or send it without "
    "`customer_hours`."
)
NEVER = "The hours of these customers' zones never meet: make a batch for each country."


class CustomerHours(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hours from `opens` to before `closes`, by the clocks of all `zones`."""

    opens: int = msgspec.field(name="from")
    closes: int = msgspec.field(name="to")
    zones: tuple[str, ...] = ()

    def stored(self) -> dict[str, Any]:
        """The hours as a JSON column stores them."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    def within(self, zones: Collection[str]) -> "CustomerHours":
        """The same hours by the clocks of zones."""
        return msgspec.structs.replace(self, zones=tuple(sorted(zones)))

    def is_open(self, moment: datetime) -> bool:
        """Whether a message may go at a moment."""
        return all(self.opens <= moment.astimezone(_zone(name)).hour < self.closes for name in self.zones)

    def next_open(self, moment: datetime) -> datetime | None:
        """The first moment, from the given one on, at which a message may go. None when the hours of the zones do not
        overlap.
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
    """The hours of a request's member, without zones yet. Raises InvalidRequest."""
    members = value if isinstance(value, dict) else {}
    opens, closes = members.get("from"), members.get("to")
    if members.keys() != {"from", "to"} or type(opens) is not int or type(closes) is not int:
        raise InvalidRequest.of(**{MEMBER: NO_HOURS})
    if not 0 <= opens < closes <= 24:
        raise InvalidRequest.of(**{MEMBER: NO_HOURS})
    return CustomerHours(opens, closes)


def restored(column: str | dict[str, Any] | None) -> CustomerHours | None:
    """The hours in a JSON column, from the ORM's parsed value or from the JSON text. None for an empty column."""
    if column is None:
        return None
    return msgspec.convert(orjson.loads(column) if isinstance(column, str) else column, CustomerHours)


def closed_until(hours: CustomerHours | None, moment: datetime) -> datetime | None:
    """When to try again a message that may not go at a moment; None when it may go."""
    if hours is None or hours.is_open(moment):
        return None
    return hours.next_open(moment) or moment + AGAIN


def zones_of(recipient: str | None) -> tuple[str, ...]:
    """The zones in which a recipient may be: a phone number as the caller wrote it, or a user id.

    Empty when no zone is known, for example for a number without a country code.
    """
    if recipient is None or outbound.lacks_country_code(recipient):
        return ()
    if outbound.is_user_id(recipient):
        return _of_country(phonenumbers.country_code_for_region(recipient[:2]))
    try:
        number = phonenumbers.parse(f"+{phone_digits(recipient)}")
    except phonenumbers.NumberParseException:
        return ()
    zones = tuple(time_zones_for_number(number))
    # A number outside its country's plan, such as Mexican ids of WhatsApp, may be anywhere in its country.
    return _of_country(number.country_code) if UNKNOWN_TIMEZONE in zones else zones


def country_code(digits: str) -> str:
    """The country code of a phone number in digits, such as 91. Empty when the number has none."""
    try:
        return str(phonenumbers.parse(f"+{digits}").country_code)
    except phonenumbers.NumberParseException:
        return ""


def _of_country(code: int | None) -> tuple[str, ...]:
    return tuple(TIMEZONE_DATA.get(str(code), ()))


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
