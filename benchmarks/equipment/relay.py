"""The floor of a deliveries worker: `python -m benchmarks.equipment.relay SOCKET PORT` posts each received datagram.

A datagram on the Unix socket is a whole HTTP request. The relay writes it to one connection to the port on loopback,
and reads the answer. It does not parse, sign, store or count anything, so it costs only two wake-ups.
"""

import asyncio
import socket
import sys


class _Receiver(asyncio.Protocol):
    """The connection to the receiver. It reads the answers and drops them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class _Signals(asyncio.DatagramProtocol):
    def __init__(self, receiver: _Receiver) -> None:
        self._receiver = receiver

    def datagram_received(self, data: bytes, _sender: object) -> None:
        self._receiver.transport.write(data)


async def _relay(signals: socket.socket, port: int) -> None:
    loop = asyncio.get_running_loop()
    _, receiver = await loop.create_connection(_Receiver, "127.0.0.1", port)
    await loop.create_datagram_endpoint(lambda: _Signals(receiver), sock=signals)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(sys.argv[1])
        bound.setblocking(False)
        asyncio.run(_relay(bound, int(sys.argv[2])))
