"""Django app of business accounts, numbers and connect sessions."""

from django.apps import AppConfig


class NumbersConfig(AppConfig):
    name = "phone_numbers"
    label = "numbers"
    verbose_name = "Numbers"

    def ready(self) -> None:
        from phone_numbers import tokens  # noqa: F401 - adds its section to the health report
        from phone_numbers.connection import state
        from phone_numbers.sandbox import control
        from tenants.signals import sandbox_wanted
        from webhooks.endpoints.lifecycle import endpoints_changed

        endpoints_changed.connect(state.on_endpoints_changed, dispatch_uid="connection_states")
        sandbox_wanted.connect(control.make_after_commit, dispatch_uid="test_world")
