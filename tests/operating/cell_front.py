"""nginx in front of two cells with `deploy/cells/nginx.conf`, as a process of this machine."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gateway.local_run import processes
from tests.free_ports import free_port
from tests.operating.proxy import NGINX, ROOT


class Front:
    """nginx with the names and ports of this machine. `held` is how many calls and notifications may wait."""

    def __init__(
        self, directory: Path, cells: Mapping[str, str], router: int, *, held: int | None = None
    ) -> None:
        self.port = free_port()
        text = (ROOT / "deploy/cells/nginx.conf").read_text()
        for written, here in (
            ("server cell-a:8080;", f"server {urlsplit(cells['cell_a']).netloc};"),
            ("server cell-b:8080;", f"server {urlsplit(cells['cell_b']).netloc};"),
            ("server router-1:8060; server router-2:8060;", f"server 127.0.0.1:{router};"),
            ("listen 8080;", f"listen 127.0.0.1:{self.port};"),
            ("include /routes/", f"include {directory}/routes/"),
        ):
            assert written in text, written
            text = text.replace(written, here)
        if held is not None:
            text = re.sub(r"limit_conn (calls|notifications) \d+;", rf"limit_conn \1 {held};", text)
        folders = "".join(
            f"{kind}_temp_path {directory}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        configuration = directory / "nginx.conf"
        configuration.write_text(
            f"{'user root;' if os.geteuid() == 0 else ''}\npid {directory}/nginx.pid;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{folders}{text}\n}}\n"
        )
        assert NGINX, "nginx is missing: `make proxy` installs it (Debian: apt-get install nginx-light)"
        self._command = [NGINX, "-p", str(directory), "-e", "stderr", "-c", str(configuration)]
        self._process = subprocess.Popen([*self._command, "-g", "daemon off;"])
        processes.wait_for_answer(self.port, "/v1/health", seconds=30, check_alive=lambda: None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reload(self) -> None:
        """Reload the routes."""
        subprocess.run([*self._command, "-s", "reload"], check=True)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
