"""Django app of business accounts, numbers and connect sessions."""

from django.apps import AppConfig


class NumbersConfig(AppConfig):
    name = "phone_numbers"
    label = "numbers"
    verbose_name = "Numbers"

    def ready(self) -> None:
        from phone_numbers import (  # noqa: F401 - tokens adds its section to the health report
            connection,
            staff_cards,
            staff_finders,
            tokens,
        )
        from phone_numbers.console import entries, finders  # noqa: F401 - register its part of the console
        from phone_numbers.sandbox import making
        from tenants.signals import address_confirmed
        from webhooks.signals import endpoints_changed

        endpoints_changed.connect(connection.on_endpoints_changed, dispatch_uid="connection_states")
        address_confirmed.connect(making.make_after_commit, dispatch_uid="test_world")
