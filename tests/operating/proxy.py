"""nginx with `deploy/nginx.conf`, as a process of this machine in front of a web process."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


class Proxy:
    """The proxy on a port of 127.0.0.1, in front of another port. One file holds both certificate and key.

    `smaller` maps parts of the configuration to replacements with limits that a test reaches sooner.
    """

    def __init__(
        self,
        directory: Path,
        certificate: Path,
        *,
        port: int,
        gateway: int,
        process_group: int | None = None,
        smaller: Mapping[str, str] | None = None,
    ) -> None:
        assert NGINX, "nginx is missing: `make proxy` installs it (Debian: apt-get install nginx-light)"
        self.url = f"https://127.0.0.1:{port}"
        self.access_log, self.error_log = directory / "access.log", directory / "error.log"
        directory.mkdir()
        text = (ROOT / "deploy/nginx.conf").read_text()
        for written, here in (
            # The address needs no look-up here, and nginx before 1.27.3 cannot look up the name of a server again.
            ("server web:8000 resolve ", f"server 127.0.0.1:{gateway} "),
            ("${NGINX_LOCAL_RESOLVERS}", "127.0.0.1"),
            ("${SERVICE_NAME}", "Acme Chat"),
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/tmp/nginx.pid", f"{directory}/pid"),
            ("/dev/stdout", str(self.access_log)),
            ("/dev/stderr", str(self.error_log)),
            ("http {", f"http {{ {_folders(directory)}"),
        ):
            assert written in text, written
            text = text.replace(written, here)
        for written, here in (smaller or {}).items():
            text = text.replace(written, here)
        configuration = directory / "nginx.conf"
        # The workers of nginx need folders of the user who runs the tests.
        user = "user root;" if os.geteuid() == 0 else ""
        configuration.write_text(
            f"daemon off; {user}\n" + re.sub(r"/tls/tls\.(crt|key)", str(certificate), text)
        )
        self.process = subprocess.Popen(
            [NGINX, "-p", str(directory), "-c", str(configuration), "-e", str(self.error_log)],
            process_group=process_group,
        )

    def close(self) -> None:
        """End the proxy at once."""
        self.process.terminate()
        self.process.wait(10)


def _folders(directory: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
