"""The edge process without the message log: what the projection of events onto messages costs is the difference."""

import django

from edge.__main__ import main


def _none(*_: object) -> None:
    return None


if __name__ == "__main__":
    django.setup()
    from webhooks.events.message_log import MessageRows

    MessageRows.add = _none  # type: ignore[method-assign]
    main()
