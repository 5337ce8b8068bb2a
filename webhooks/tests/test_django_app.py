"""The SDK's Django app in a project that follows docs/django.md: the project's own tests, and deliveries of the
gateway.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiohttp import web

from tenants.models import Tenant
from tests.fixtures import Api, wait_until
from tests.free_ports import free_port
from tests.pages import ROOT, page
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.models import Delivery
from webhooks.requests.signed_request import headers, key_of, new_secret
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

FILES = re.compile(r"`(shop/\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETTINGS = """
import os
SECRET_KEY = "x"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "shop.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
INSTALLED_APPS = ["whabuzz.django", "shop"]
WHABUZZ_WEBHOOK_SECRET = os.environ["WEBHOOK_SECRET"]
"""
CELERY = """
from celery import Celery
app = Celery("shop", set_as_current=True)
app.conf.task_always_eager = app.conf.task_eager_propagates = True
"""
# In one process, because each start of Django takes a second or more.
STEPS = """
import sys, django
from django.core.management import call_command as call
django.setup()
call("makemigrations", check_changes=True)
call("migrate", verbosity=0)
call("test")
call("runserver", sys.argv[1], use_reloader=False)
"""
SECRET = new_secret()


@pytest.fixture
def project(tmp_path: Path, receiver: Receiver) -> Iterator[str]:
    """A running project whose tests have passed. Yields its address. The receiver replaces the gateway's API."""
    (tmp_path / "shop").mkdir()
    files = dict(FILES.findall(page("docs/django.md")))
    assert set(files) == {f"shop/{name}.py" for name in ("urls", "handlers", "apps", "tasks", "tests")}
    for name, text in {**files, "shop/__init__.py": CELERY, "shop/settings.py": SETTINGS}.items():
        (tmp_path / name).write_text(text)
    port = free_port()
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", STEPS, str(port)],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{tmp_path}:{ROOT / 'sdks/python/src'}",
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "WEBHOOK_SECRET": SECRET,
                "WHABUZZ_API_KEY": "wb_test_x",
                "WHABUZZ_BASE_URL": receiver.url.removesuffix("/hook"),
            },
            stdout=log,
            stderr=log,
        )
    try:
        address = f"http://127.0.0.1:{port}/whatsapp"
        wait_until(lambda: is_up(address) or process.poll() is not None, "the project does not serve")
        written = (tmp_path / "log").read_text()
        assert process.poll() is None, written
        assert "Ran 1 test" in written
        yield address
    finally:
        process.terminate()
        process.wait(10)


def is_up(address: str) -> bool:
    try:
        return httpx.get(address).status_code == 405
    except httpx.TransportError:
        return False


def message(n: int) -> dict[str, Any]:
    inbound = {"id": f"wamid.{n}", "from": "919812345678", "type": "text", "text": {"body": "Hi"}}
    return {"wa_id": "919812345678", "phone_number_id": "1002003", "data": orjson.dumps({"message": inbound})}


def test_each_event_is_handled_once(project: str, api: Api, tenant: Tenant, receiver: Receiver) -> None:
    answers = [web.json_response({"error": {"code": "x", "message": "no"}}, status=400)]
    receiver.answer = lambda _: (
        answers.pop() if answers else web.json_response({"messages": [{"id": "wamid.R"}]})
    )
    assert api.post("/v1/webhooks", {"url": project, "secret": SECRET}).json()["status"] == "active"

    publish_one(tenant, **message(1))
    dispatcher.run()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.last_http_status) == ("failed", 500), (
        "a handler that raises is asked again"
    )
    Delivery.objects.update(next_attempt_at="2026-01-01T00:00:00Z")
    dispatcher.run()
    replayed = api.post(f"/v1/webhook-deliveries/{delivery.public_id}/replay").json()
    assert (Delivery.objects.get(pk=delivery.pk).status, replayed["status"]) == ("delivered", "delivered")
    assert [each.path for each in receiver.received] == ["/v1/messages"] * 2, "the refused one and the answer"

    event = {"id": "evt_1", "type": "message.inbound", "dedupe_key": "k2", **message(2)}
    body = orjson.dumps({**event, "data": orjson.Fragment(event["data"])})
    signed = headers(
        keys=(key_of(SECRET),), message_id="evt_1", timestamp=int(time.time()), body=body, event_type="x"
    )
    with ThreadPoolExecutor(2) as pool:
        posts = [pool.submit(httpx.post, project, content=body, headers=signed) for _ in range(2)]
        assert [post.result().status_code for post in posts] == [200, 200]
    assert len(receiver.received) == 3
    assert httpx.post(project, content=body + b" ", headers=signed).status_code == 401
