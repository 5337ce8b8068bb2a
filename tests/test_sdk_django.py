"""The Django app of the Python SDK, in a project of its own."""

import subprocess
import sys
from textwrap import dedent

from tests.pages import ROOT

PROJECT = """
from datetime import timedelta

import django
from django.conf import settings
from django.core.management import call_command
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["whabuzz.django"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    WHABUZZ_WEBHOOK_SECRET="whsec_c2VjcmV0",
)
django.setup()
from whabuzz.django import views
from whabuzz.django.models import SeenEvent
from whabuzz.django.signals import receives
from whabuzz.django.testing import deliver, inbound_text
from whabuzz.webhooks import signed_headers

urlpatterns = [path("whatsapp", views.webhook)]
call_command("migrate", verbosity=0)
handled = []
receives("message.inbound")(lambda event: handled.append(event["id"]))
"""


def run(program: str) -> None:
    """Run a program in the project."""
    done = subprocess.run(
        [sys.executable, "-c", PROJECT + dedent(program)],
        env={"PYTHONPATH": str(ROOT / "sdks/python/src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_event_of_a_large_notification_is_handled_once() -> None:
    run(
        """
        event = inbound_text("Hi", raw="x" * 3_000_000)
        assert [deliver(event).status_code for _ in range(2)] == [200, 200]
        assert handled == [event["id"]]
        views.MOST_BYTES = 3_000_000
        assert deliver(inbound_text("Hi", raw="x" * 3_000_000)).status_code == 413
        assert deliver({"type": "webhook.verify", "challenge": "chl"}).content == b"chl"
        """
    )


def test_a_key_is_kept_as_long_as_its_event_can_be_replayed() -> None:
    run(
        """
        from django.utils import timezone
        for age in (89, 364, 366):
            SeenEvent.objects.create(dedupe_key=age, seen_at=timezone.now() - timedelta(days=age))
        assert SeenEvent.prune() == 1
        assert SeenEvent.prune(timedelta(days=90)) == 1
        assert SeenEvent.objects.get().dedupe_key == "89"
        """
    )
