"""Lists the files of the project that each flow executes: `make flows`.

Function calls are traced in every thread while a flow runs for the second time; imports do not count. A file counts as
the flow's own unless it is settings, logging, metrics or traces (`COMMON`).
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from billing import buyers, due_mails, usage
from billing.invoices import issuing
from billing.models import Invoice
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist
from billing.tests.conftest import payer as payer
from messaging.tests.conftest import account as account
from messaging.tests.conftest import number as number
from messaging.tests.incoming import notification, post, text_change
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.fixtures import Api
from tests.pages import ROOT
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.models import Event
from webhooks.tests.conftest import _no_lingering as _no_lingering
from webhooks.tests.conftest import endpoint as endpoint
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

COMMON = ("gateway/settings.py", "gateway/monitoring/", "gateway/api/call_log.py")
"""Settings; logs, metrics and traces; the log line and the metrics of each response."""


class Tracer:
    """Collects the files whose functions are called while it records."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_recording = False
        threading.settrace(self._called)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.is_recording and frame.f_code.co_name != "<module>":
            self.files.add(frame.f_code.co_filename)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of this thread, and of all threads that started after the tracer."""
        self.files.clear()
        before = sys.gettrace()
        self.is_recording = True
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            self.is_recording = False

    def own(self) -> list[str]:
        """The recorded files of the project, without tests and common parts."""
        paths = {Path(name) for name in self.files}
        names = sorted(
            str(path.relative_to(ROOT))
            for path in paths
            if path.is_relative_to(ROOT)
            and path.parts[len(ROOT.parts)] not in {".venv", "tests", "conftest.py"}
        )
        return [name for name in names if "/tests/" not in name and not name.startswith(COMMON)]


# Created before the first test starts the listener, so that its thread is traced.
tracer = Tracer()


Step = Callable[[int], object]
"""A flow or its preparation, called with the number of the run: 1 or 2."""
Record = Callable[..., None]


@pytest.fixture
def record(capsys: pytest.CaptureFixture[str]) -> Record:
    """Run a flow twice, and print the files of the second run."""

    def run(flow: str, step: Step, prepare: Step = lambda turn: None) -> None:
        prepare(1)
        step(1)
        prepare(2)
        with tracer.recording():
            step(2)
        own = tracer.own()
        with capsys.disabled():
            apart = sum(not name.startswith("gateway/") for name in own)
            print(f"\n{flow}: {len(own)} files, {apart} of them outside gateway", *own, sep="\n    ")  # noqa: T201
        assert own

    return run


@pytest.mark.usefixtures("endpoint")
def test_send(record: Record, api: Api, number: PhoneNumber) -> None:
    def send(turn: int) -> None:
        body = {"to": "+919812345678", "type": "text", "text": {"body": "Hello"}}
        sent = {"from": number.phone_number_id, **body}
        assert api.post("/v1/messages", sent, idempotency_key=f"k{turn}").status_code == 200

    record("Send", send)


@pytest.mark.usefixtures("endpoint")
def test_notification(record: Record, number: PhoneNumber) -> None:
    def receive(turn: int) -> None:
        change = text_change(number.phone_number_id, f"wamid.{turn}")
        assert post(notification((number.account.waba_id, [change]))).status_code == 200
        assert Event.objects.filter(wamid=f"wamid.{turn}").exists()

    record("Notification to event", receive)


@pytest.mark.usefixtures("endpoint")
def test_delivery(record: Record, tenant: Tenant, receiver: Receiver) -> None:
    def deliver(turn: int) -> None:
        dispatcher.run()
        receiver.wait_for(turn)

    record("Delivery", deliver, prepare=lambda turn: publish_one(tenant, key=f"k{turn}"))


@pytest.mark.usefixtures("endpoint")
def test_message_page(record: Record, browser: Client, number: PhoneNumber) -> None:
    change = text_change(number.phone_number_id, "wamid.1")
    assert post(notification((number.account.waba_id, [change]))).status_code == 200

    def look(turn: int) -> None:
        assert browser.get("/console/messages/wamid.1").status_code == 200

    record("Message page", look)


def test_invoice(record: Record, payer: Tenant, settings: Settings) -> None:
    settings.BILLING_ENABLED = True
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))

    def issue(turn: int) -> None:
        """The steps of the billing run that are of an invoice: counted, issued, mailed."""
        at = FIRST_OF_DECEMBER if turn == 1 else ist(2027, 1, 1, 0, 15)
        for step in (usage.take_snapshots, issuing.issue_due, due_mails.send_invoices):
            step(at)
        assert Invoice.objects.filter(tenant=payer).count() == turn

    record("Invoice", issue)
