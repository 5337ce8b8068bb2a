"""A Django app that switches the message log off in its process."""

from django.apps import AppConfig


class WithoutMessages(AppConfig):
    """Events are published, but no rows of messages are written."""

    name = "benchmarks.equipment"
    label = "without_messages"

    def ready(self) -> None:
        from webhooks.events.publish import MessageRows

        MessageRows.add = _none  # type: ignore[method-assign, assignment]


def _none(*_: object) -> None:
    return None
