"""The metrics page counts the notifications that belong to no tenant."""

from typing import Any

import pytest
from django.test import Client

from messaging.notifications import incoming

pytestmark = pytest.mark.django_db


def test_kept_notifications_are_counted(settings: Any) -> None:
    settings.METRICS_TOKEN = "scraper-token"
    incoming.accept(b"{}", environments=["live"])
    page = Client().get("/metrics", headers={"Authorization": "Bearer scraper-token"})
    assert "gateway_kept_notifications 1.0" in page.content.decode().splitlines()
