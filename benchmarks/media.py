"""Upload and download of a file of 100 MB through one web process: how much the memory of the process grows."""

import hashlib
import io
import subprocess
import threading
import time
from collections.abc import Callable

import requests
from requests.models import Response

from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import Business, business
from gateway.upstream.blocking_client import MultipartFile

SIZE = 100 * 1024 * 1024 - 1024
GROWTH_MEGABYTES = 30


def run(harness: Harness) -> list[Result]:
    """Upload the file, then download it."""
    upstream = harness.simulator()
    each = business()
    account = {
        "waba_id": each.waba_id,
        "access_token": "EAAbench",
        "numbers": [{"phone_number_id": each.phone_number_id}],
    }
    requests.post(f"{upstream}/sim/accounts", json=account, timeout=10).raise_for_status()
    url = harness.web(META_GRAPH_URL=upstream)
    web = _children(harness.running["web"].pid)[0]
    content = hashlib.sha256(b"a file").digest() * (SIZE // 32)
    _upload(
        url, each, content[: 1024 * 1024]
    )  # the first upload loads modules, which must not count as growth
    answers: list[Response] = []
    up = _measure(web, "100 MB up", lambda: answers.append(_upload(url, each, content)))
    media_id = answers[0].json()["id"]
    got = hashlib.sha256()
    down = _measure(web, "100 MB down", lambda: _download(url, each, media_id, got.update))
    down.expect(got.digest() == hashlib.sha256(content).digest(), "other bytes came back")
    return [up, down]


def _measure(web: int, what: str, work: Callable[[], None]) -> Result:
    before = most = _kilobytes(web)
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, _kilobytes(web))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    growth = (most - before) / 1024
    result = Result(
        f"{what}: {growth:.1f} MB grown",
        1,
        SIZE / seconds / 1e6,
        unit="MB",
        target=f"≤ {GROWTH_MEGABYTES} MB",
    )
    result.expect(growth <= GROWTH_MEGABYTES, f"the web process grew by {growth:.1f} MB")
    return result


def _upload(url: str, each: Business, content: bytes) -> Response:
    form = MultipartFile(
        {"from": each.phone_number_id},
        io.BytesIO(content),
        length=len(content),
        name="large.pdf",
        mime_type="application/pdf",
    )
    headers = {"Authorization": f"Bearer {each.api_key}", "Content-Type": form.content_type}
    answer = requests.post(f"{url}/v1/media", data=form, headers=headers, timeout=60)
    answer.raise_for_status()
    return answer


def _download(url: str, each: Business, media_id: str, take: Callable[[bytes], None]) -> None:
    headers = {"Authorization": f"Bearer {each.api_key}"}
    with requests.get(f"{url}/v1/media/{media_id}", headers=headers, stream=True, timeout=60) as answer:
        answer.raise_for_status()
        for chunk in answer.iter_content(256 * 1024):
            take(chunk)


def _children(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True
    )
    return [int(line) for line in listed.stdout.split()]


def _kilobytes(process_id: int) -> int:
    """The resident memory of a process, in KiB."""
    with open(f"/proc/{process_id}/status") as status:  # noqa: PTH123 - a pseudo file
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
