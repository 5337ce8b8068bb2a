"""Traces of real processes: complete at the end of a process, never waiting for the collector, and absent when off."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests

from gateway import embedded_addresses
from messaging.tests.conftest import connected_number
from tenants.credentials.api_keys import NewKey
from tenants.models import Tenant
from tests.collector import Collector
from tests.faults.conftest import valkey
from tests.faults.service import Service, Valkey, database_url
from tests.fixtures import Api
from tests.receiver import Receiver
from tests.simulated import RunningSimulator

__all__ = ["valkey"]

ROOT = Path(__file__).resolve().parents[2]
_SET_UP = """
import json, os, signal, sys, threading, time
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway.settings"
import django
django.setup()
from django.conf import settings
from gateway.monitoring import tracing
for line in sys.stdin:
    code, output, environment = json.loads(line)
    if not os.fork():
        break
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
else:
    sys.exit()
signal.alarm(120)
os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
os.environ.update(environment)
settings.OTEL_EXPORTER_OTLP_ENDPOINT = environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
exec(code)
"""
_SPANS = """
assert not [thread for thread in threading.enumerate() if thread.daemon], "a thread of the export before its begin"
tracing.begin()
begun = time.monotonic()
for _ in range(3000):
    with tracing.span("work"):
        pass
print(time.monotonic() - begun, flush=True)
"""


class Run(Protocol):
    """The type of the fixture `run`."""

    def __call__(self, code: str, **environment: str) -> str: ...


@pytest.fixture(scope="module")
def starter() -> Iterator["subprocess.Popen[str]"]:
    """A process that has set up Django, and forks a process for each line of its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SET_UP],
        cwd=ROOT,
        env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


@pytest.fixture
def run(starter: "subprocess.Popen[str]", tmp_path: Path) -> Run:
    """A function that runs code in a separate process, to its end. Returns the output."""

    def run(code: str, **environment: str) -> str:
        assert starter.stdin is not None
        assert starter.stdout is not None
        output = tmp_path / "output"
        starter.stdin.write(json.dumps([code, str(output), environment]) + "\n")
        starter.stdin.flush()
        assert starter.stdout.readline() == "0\n", "the process failed: see its errors"
        return output.read_text()

    return run


def test_while_they_are_off_the_sdk_is_not_imported(run: Run) -> None:
    found = json.loads(
        run(
            "import gateway.__main__, web.routes\n"
            "tracing.begin()\n"
            "with tracing.span('x') as span: print(json.dumps([span.traceparent, tracing.current(),"
            " [name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'google.protobuf'))]]))",
            OTEL_EXPORTER_OTLP_ENDPOINT="",
        )
    )
    assert found == [None, None, []]


def test_what_is_finished_at_the_end_of_a_process_is_exported(run: Run, collector: Collector) -> None:
    run(_SPANS, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_MAX_QUEUE_SIZE="3000")
    assert len({span.span_id for span in collector.named("work")}) == len(collector.spans) == 3000


def test_a_collector_that_hangs_holds_up_neither_work_nor_the_end(run: Run, collector: Collector) -> None:
    over = threading.Event()
    collector.before_answer = lambda: over.wait(120)
    began = time.monotonic()
    took = float(run(_SPANS, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url))
    altogether = time.monotonic() - began
    over.set()
    assert took < 10, "a span waited for the collector"
    assert altogether < 25, "the SDK's own end waits for half a minute"


@pytest.fixture
def service(
    simulator: RunningSimulator, tmp_path: Path, valkey: Valkey, collector: Collector
) -> Iterator[Service]:
    """Processes that send traces."""
    running = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        REDIS_URL=embedded_addresses.valkey_url(tmp_path),
        META_GRAPH_URL=simulator.url,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_HEADERS="x-collector-key=k%2017",
        OTEL_BSP_SCHEDULE_DELAY="50",
    )
    yield running
    running.close()


@pytest.mark.e2e
@pytest.mark.django_db(transaction=True)
def test_a_web_process_workers_and_the_small_host_export(
    service: Service,
    tenant: Tenant,
    key: NewKey,
    api: Api,
    simulator: RunningSimulator,
    receiver: Receiver,
    collector: Collector,
) -> None:
    number = connected_number(tenant, simulator.account())
    assert api.post("/v1/webhooks", {"url": receiver.url}).status_code == 201
    service.worker("deliveries")
    service.worker("tasks")
    web, small_host = service.web(), service.small_host()
    traces = {
        "4bf92f3577b34da6a3ce929d0e0e4736": web.url,
        "5bf92f3577b34da6a3ce929d0e0e4737": small_host.url,
    }
    for place, (trace_id, url) in enumerate(traces.items()):
        message: dict[str, Any] = {
            "from": number.phone_number_id,
            "to": f"+91981234567{place}",
            "type": "text",
            "text": {"body": "Hello"},
        }
        answer = requests.post(
            f"{url}/v1/messages",
            json=message,
            headers={"Authorization": f"Bearer {key.key}", "traceparent": f"00-{trace_id}-{'0' * 15}1-01"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
    for got in receiver.wait_for(2, seconds=30):
        assert got.headers["traceparent"].split("-")[1] in traces
    for trace_id in traces:
        for name in ("POST /v1/messages", "POST messages", "deliver message.outbound"):
            collector.wait_for(name, trace_id=trace_id)
    assert {headers["x-collector-key"] for headers in collector.headers} == {"k 17"}
