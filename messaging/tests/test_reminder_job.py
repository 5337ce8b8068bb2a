"""The reminder job of docs/reminders.md is stopped at each line and run again. Each customer gets one reminder."""

import functools
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from messaging.models import Batch, BatchItem, MessageReference
from phone_numbers.models import PhoneNumber
from tenants.credentials import api_keys
from tests.fixtures import Api
from tests.pages import ROOT, marked_block
from tests.sdk_import import sdk_from

pytestmark = pytest.mark.django_db

# Three visits are handled two at a time, so the job's loop runs twice.
JOB = marked_block("docs/reminders.md", "reminder job").replace("LIMIT 100", "LIMIT 2")
PEOPLE = [f"91980000000{place}" for place in range(3)]
MOST_STOPS = 500


class Stopped(BaseException):
    """Stands for the end of the job's process."""


class Stop:
    """Ends the job at its n-th step. A step is a line of the job, or the moment between the service's answer and its
    arrival at the job.
    """

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Stopped

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != "reminders.py":
            return None
        if event == "line":
            self.step()
        return self.trace


class Service(httpx.BaseTransport):
    """Passes the job's requests to the service in this process."""

    stop: Stop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {"Authorization": request.headers["authorization"]}
        answer = Api(None, **headers).request(request.method, request.url.path, request.read())
        self.stop.step()
        return httpx.Response(answer.status_code, headers=dict(answer.items()), content=answer.content)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: PhoneNumber, key: api_keys.NewKey
) -> Iterator[Callable[[int | None], bool]]:
    """A function that runs the job up to a step and returns whether the job finished."""
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHABUZZ_API_KEY", key.key)
    monkeypatch.setenv("WHABUZZ_BASE_URL", "http://testserver")
    monkeypatch.setenv("FROM", number.phone_number_id)
    code = compile(JOB, "reminders.py", "exec")
    service = Service()

    def run(at: int | None) -> bool:
        service.stop = Stop(at)
        before = sys.gettrace()
        names: dict[str, Any] = {"__name__": "__main__"}
        sys.settrace(service.stop.trace)
        try:
            exec(code, names)  # noqa: S102 - the documentation's own program
        except Stopped:
            return False
        finally:
            sys.settrace(before)
            # Closing without a commit loses changes, as the end of a process does.
            if "visits" in names:
                names["visits"].close()
        return True

    with sdk_from(ROOT / "sdks/python/src"):
        monkeypatch.setattr(httpx, "Client", functools.partial(httpx.Client, transport=service))
        yield run


def make_visits(path: Path) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as visits:
        visits.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, phone, name, reminded DEFAULT false)")
        visits.executemany(
            "INSERT INTO visits (phone, name) VALUES (?, 'Asha')", [[phone] for phone in PEOPLE]
        )
    visits.close()


def reminded() -> Counter[str]:
    """How many messages each customer would get."""
    bodies = BatchItem.objects.filter(status="pending").values_list("body", flat=True)
    return Counter(phone for body in bodies for phone in PEOPLE if phone.encode() in bytes(body))


def test_wherever_the_job_stops_everybody_is_reminded_once(
    run: Callable[[int | None], bool], tmp_path: Path
) -> None:
    for stop in range(1, MOST_STOPS):
        for model in (BatchItem, Batch, MessageReference):
            model.objects.all().delete()
        make_visits(tmp_path / "visits.db")
        ended = run(stop)
        if not ended:
            assert run(None)
        assert reminded() == Counter(PEOPLE), f"stopped at step {stop}"
        if ended:
            return
    raise AssertionError(f"The job has more than {MOST_STOPS} steps.")
