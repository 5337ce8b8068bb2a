"""Values as pages show them: durations in milliseconds and phone numbers."""

NOTHING = "–"
"""What pages show of an empty value."""


def milliseconds(duration: float) -> str:
    """A duration with its unit, a fraction with one digit, e.g. `1,204 ms` or `12.3 ms`; never `0 ms`."""
    if duration < 1:
        return "< 1 ms"
    return f"{duration:,.1f} ms" if isinstance(duration, float) else f"{duration:,} ms"


def phone_number(name: str) -> str:
    """What names a customer or a number. Bare digits are a phone number and get their "+"; a user id stays as it is."""
    return f"+{name}" if name.isdecimal() else name
