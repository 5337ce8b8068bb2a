"""The files of the project that each flow executes, and bounds on their number. `make flows` lists the files.

Function calls are traced while a flow runs for the second time, so imports do not count. Settings, logging, metrics and
traces do not count either (`COMMON`). Files of `gateway` (the database, HTTP, Valkey, Meta's notifications) are counted
separately, because all flows share them.
"""

import asyncio
import gc
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

from billing import buyers, mails, usage
from billing.invoices import issuing
from billing.models import Invoice
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist
from billing.tests.conftest import payer as payer
from messaging.notifications import routing
from messaging.tests.conftest import account as account
from messaging.tests.conftest import number as number
from messaging.tests.incoming import notification, post, text_change
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests import front
from tests.fixtures import Api
from tests.pages import ROOT
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.models import Event
from webhooks.tests.conftest import _no_lingering as _no_lingering
from webhooks.tests.conftest import endpoint as endpoint
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

COMMON = ("gateway/settings.py", "gateway/monitoring/", "gateway/api/access_log.py")
"""Paths of settings, logs, metrics, traces, and the log line of each response."""
BESIDE = ("web/stream_response.py", "web/open_streams.py")
"""Files of the event stream. Its hub keeps running in the listener's event loop after a test has opened a stream."""


class Tracer:
    """Collects the files whose functions are called while it records.

    It traces the calling thread, the threads that start while it records, and the tasks that start in the listener's
    event loop. Threads and tasks that started earlier do other work at any time, such as storing pending writes.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_recording = False
        self._earlier: set[asyncio.Task[Any]] = set()

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._is_recording:
            sys.settrace(None)
        elif frame.f_code.co_name != "<module>":
            self._files.add(frame.f_code.co_filename)

    def _called_in_loop(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._is_recording or asyncio.current_task() not in {None, *self._earlier}:
            self._called(frame, event, argument)

    async def _trace_loop(self) -> None:
        self._earlier = asyncio.all_tasks()
        sys.settrace(self._called_in_loop)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls inside the block."""
        before = sys.gettrace()
        gc.collect()  # otherwise the coroutines that earlier tests left would end while this records
        self._is_recording = True
        front.running.run(self._trace_loop())
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)  # type: ignore[arg-type]
            self._is_recording = False

    def own(self) -> list[str]:
        """Return the recorded files of the project, without tests and common files."""
        paths = {Path(name) for name in self._files}
        names = sorted(
            str(path.relative_to(ROOT))
            for path in paths
            if path.is_relative_to(ROOT)
            and path.parts[len(ROOT.parts)] not in {".venv", "tests", "conftest.py"}
        )
        return [name for name in names if "/tests/" not in name and not name.startswith(COMMON + BESIDE)]


Step = Callable[[int], object]
"""A flow or its preparation, called with the number of the run: 1 or 2."""


def trace_flow(
    flow: str,
    step: Step,
    *,
    apart: int,
    in_gateway: int,
    prepare: Step = lambda turn: None,
) -> None:
    """Run a flow twice, and print the files of the second run.

    `apart` is the maximum number of files outside `gateway`, `in_gateway` the maximum inside.
    """
    tracer = Tracer()
    prepare(1)
    step(1)
    prepare(2)
    with tracer.recording():
        step(2)
    own = tracer.own()
    common = [name for name in own if name.startswith("gateway/")]
    print(f"\n{flow}: {len(own) - len(common)} files, and {len(common)} of gateway", *own, sep="\n    ")  # noqa: T201
    assert common
    assert len(own) - len(common) <= apart
    assert len(common) <= in_gateway


@pytest.mark.usefixtures("endpoint")
def test_the_files_of_a_send(api: Api, number: PhoneNumber) -> None:
    def send(turn: int) -> None:
        body = {"to": "+919812345678", "type": "text", "text": {"body": "Hello"}}
        sent = {"from": number.phone_number_id, **body}
        assert api.post("/v1/messages", sent, idempotency_key=f"k{turn}").status_code == 200

    trace_flow("Send", send, apart=15, in_gateway=15)


@pytest.mark.usefixtures("endpoint")
def test_the_files_of_a_notification(number: PhoneNumber, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, the second notification comes more than a second after the first.
    monkeypatch.setattr(routing, "OWNER_SECONDS", 60.0)

    def receive(turn: int) -> None:
        change = text_change(number.phone_number_id, f"wamid.{turn}")
        assert post(notification((number.account.waba_id, [change]))).status_code == 200
        assert Event.objects.filter(wamid=f"wamid.{turn}").exists()

    trace_flow("Notification to event", receive, apart=12, in_gateway=8)


@pytest.mark.usefixtures("endpoint")
def test_the_files_of_a_delivery(tenant: Tenant, receiver: Receiver) -> None:
    def deliver(turn: int) -> None:
        dispatcher.run()
        receiver.wait_for(turn)

    trace_flow(
        "Delivery", deliver, apart=15, in_gateway=10, prepare=lambda turn: publish_one(tenant, key=f"k{turn}")
    )


@pytest.mark.usefixtures("endpoint")
def test_the_files_of_a_message_page(browser: Client, number: PhoneNumber) -> None:
    change = text_change(number.phone_number_id, "wamid.1")
    assert post(notification((number.account.waba_id, [change]))).status_code == 200

    def look(turn: int) -> None:
        assert browser.get("/console/messages/wamid.1").status_code == 200

    trace_flow("Message page", look, apart=15, in_gateway=10)


def test_the_files_of_an_invoice(payer: Tenant, settings: Settings) -> None:
    settings.BILLING_ENABLED = True
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))

    def issue(turn: int) -> None:
        """Run the steps of the billing run for an invoice: count the usage, issue the invoice, mail it."""
        at = FIRST_OF_DECEMBER if turn == 1 else ist(2027, 1, 1, 0, 15)
        for step in (usage.take_snapshots, issuing.issue_due, mails.send_invoices):
            step(at)
        assert Invoice.objects.filter(tenant=payer).count() == turn

    trace_flow("Invoice", issue, apart=15, in_gateway=2)
