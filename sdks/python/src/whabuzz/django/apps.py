"""The app `whabuzz.django`."""

from django.apps import AppConfig


class WhabuzzConfig(AppConfig):
    """The app. Add `whabuzz.django` to INSTALLED_APPS, and `WHABUZZ_WEBHOOK_SECRET` to the settings."""

    name = "whabuzz.django"
    label = "whabuzz"
    verbose_name = "WhatsApp webhooks"
    default_auto_field = "django.db.models.BigAutoField"
