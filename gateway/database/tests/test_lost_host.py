"""A lost database host: connections to the host end within seconds, before the kernel gives up."""

import socket

from django.conf import settings
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, PollingStatus

MOST_SECONDS = 15


def test_the_kernel_gets_the_timeouts_for_a_silent_host() -> None:
    options = settings.DATABASES["default"]["OPTIONS"]
    bounds = {name: value for name, value in options.items() if name.startswith(("tcp_", "keepalives"))}
    with socket.create_server(("127.0.0.1", 0)) as server:
        info = make_conninfo("", host="127.0.0.1", port=server.getsockname()[1], sslmode="disable", **bounds)
        connecting = PGconn.connect_start(info.encode())
        # When the connection sends its first bytes, it is established and has its options.
        while connecting.connect_poll() == PollingStatus.WRITING:
            pass
        with socket.socket(fileno=socket.dup(connecting.socket)) as client:
            asked = {
                name: client.getsockopt(socket.IPPROTO_TCP, name)
                for name in (
                    socket.TCP_USER_TIMEOUT,
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                )
            }
            keeps_alive = client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        connecting.finish()
    assert keeps_alive
    assert 0 < asked[socket.TCP_USER_TIMEOUT] <= MOST_SECONDS * 1000
    probed = asked[socket.TCP_KEEPIDLE] + asked[socket.TCP_KEEPINTVL] * asked[socket.TCP_KEEPCNT]
    assert probed <= MOST_SECONDS
