"""The front of the cells: each key's calls reach its own cell, and hanging calls leave room for everything else."""

import socket
import time
from pathlib import Path

import pytest
import requests
from aiohttp import web

from tests.fixtures import wait_until
from tests.operating.cell_front import Front
from tests.receiver import Receiver

OF_A, OF_B = "wb_live_aaaaaaaa0123456789", "wb_test_bbbbbbbb0123456789"
HELD = 20
OF_HANGING_CELL = ("GET", "/v1/numbers", {"Authorization": f"Bearer {OF_B}"})
OF_HANGING_ROUTER = ("POST", "/upstream/webhook", {"Content-Length": "0"})

Call = tuple[str, str, dict[str, str]]


@pytest.mark.parametrize("call", [OF_HANGING_CELL, OF_HANGING_ROUTER], ids=["cell", "router"])
def test_what_hangs_leaves_room_for_the_rest(call: Call, tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "routes").mkdir()
    (tmp_path / "routes/cell_a.keys").write_text(f"{OF_A[:16]} cell_a;\n")
    (tmp_path / "routes/cell_b.keys").write_text(f"{OF_B[:16]} cell_b;\n")
    receiver.ping_answer = lambda got: web.Response(text=got.path)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as hanging:
        port = hanging.getsockname()[1]
        cells = {"cell_a": receiver.url.removesuffix("/hook"), "cell_b": f"http://127.0.0.1:{port}"}
        front = Front(tmp_path, cells, router=port, held=HELD)
        waiting = [begun(front, call) for _ in range(HELD)]
        try:
            wait_until(lambda: is_refused(front, call), "more of them wait than may")
            took = [healthy(front) for _ in range(100)]
            assert sorted(took)[98] < 0.5
        finally:
            for each in waiting:
                each.close()
            front.close()


def test_a_notice_of_the_payment_provider_reaches_every_cell(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "routes").mkdir()
    receiver.ping_answer = lambda got: web.Response()
    cell = receiver.url.removesuffix("/hook")
    front = Front(tmp_path, {"cell_a": cell, "cell_b": cell}, router=1)
    try:
        url = f"{front.url}/internal/razorpay/webhook?n=1"
        answer = requests.post(url, data=b'{"n":1.50}', headers={"X-Razorpay-Signature": "s"}, timeout=5)
        assert answer.status_code == 200
        wait_until(lambda: len(receiver.received) == 2, "both cells have it")
    finally:
        front.close()
    for got in receiver.received:
        assert (got.path, got.body) == ("/internal/razorpay/webhook", b'{"n":1.50}')
        assert got.headers["X-Razorpay-Signature"] == "s"


def begun(front: Front, call: Call) -> socket.socket:
    """A call that waits for its response."""
    method, path, headers = call
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection = socket.create_connection(("127.0.0.1", front.port))
    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    return connection


def is_refused(front: Front, call: Call) -> bool:
    """Whether another call is rejected at once. This is so as soon as nginx has read the waiting ones."""
    method, path, headers = call
    try:
        answer = requests.request(method, front.url + path, headers=headers, timeout=0.2)
    except requests.Timeout:
        return False
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json()["error"]["code"] == "service_unavailable"
    return True


def healthy(front: Front) -> float:
    """The duration of a call of the other cell's tenant, in seconds."""
    began = time.perf_counter()
    answer = requests.get(f"{front.url}/v1/numbers", headers={"Authorization": f"Bearer {OF_A}"}, timeout=5)
    assert (answer.status_code, answer.text) == (200, "/v1/numbers")
    return time.perf_counter() - began
