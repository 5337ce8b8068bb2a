"""The services of docker-compose.yml as plain processes: the same commands, environment, user and folder permissions.

This module does the work of a container engine. It interpolates variables, replaces host names and ports with those
of this machine, creates a folder for each volume, and runs health checks until they pass.
"""

import json
import os
import re
import select
import shlex
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from gateway.local_run import processes
from gateway.local_run.process_group import ProcessGroup
from tests.free_ports import free_port
from tests.operating.proxy import ROOT, Proxy
from tests.pages import production_settings

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:?[-?])([^}]*))?\}")


def dockerfile_lines() -> list[str]:
    """The instructions of the image, each on one line."""
    return (ROOT / "Dockerfile").read_text().replace("\\\n", "").splitlines()


def image_user() -> int:
    """The user id of the image's processes."""
    [user] = [line.split()[1] for line in dockerfile_lines() if line.startswith("USER ")]
    [found] = [re.search(rf"--uid (\d+) .*{user}", line) for line in dockerfile_lines() if "useradd" in line]
    assert found, "the image makes its user with a fixed id"
    return int(found[1])


def image_folders() -> list[str]:
    """The folders that the image creates for its user. A new volume takes its owner and mode from them."""
    [made] = [
        re.search(r"install -d -o gateway -m 0700 (.*)", line)
        for line in dockerfile_lines()
        if "-o gateway" in line
    ]
    assert made
    return made[1].split()


def image_environment() -> dict[str, str]:
    """The variables that the image sets."""
    words = [word for line in dockerfile_lines() if line.startswith("ENV ") for word in line.split()[1:]]
    return dict(word.split("=", 1) for word in words)


def image_command() -> list[str]:
    """The command of a container whose service has no `command`."""
    [command] = [line.removeprefix("CMD ") for line in dockerfile_lines() if line.startswith("CMD ")]
    words: list[str] = json.loads(command)
    return words


def words_of(command: str | list[str]) -> list[str]:
    """A command as a list of words."""
    return shlex.split(command) if isinstance(command, str) else command


def services(variables: Mapping[str, str]) -> dict[str, Any]:
    """The services of the compose file with the variables of an `.env` file.

    Raises KeyError for a variable that must be set.
    """

    def value(match: re.Match[str]) -> str:
        name, operator, default = match.groups()
        found = variables.get(name)
        if found is None or (operator and operator.startswith(":") and not found):
            if operator is None or operator.endswith("?"):
                raise KeyError(f"{name}: {default}")
            return str(default)
        return found

    parsed: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(value, (ROOT / "docker-compose.yml").read_text()))
    found: dict[str, Any] = parsed["services"]
    return found


def documented_settings() -> dict[str, str]:
    """The `.env` file in docs/operations.md, and the variables that the compose file requires."""
    shown = production_settings()
    for name in (
        "DATABASE_URL",
        "REDIS_URL",
        "SANDBOX_GRAPH_URL",
        "TRUSTED_PROXY_COUNT",
        "TRUST_PROXY_HEADERS",
    ):
        del shown[name]  # the file sets them itself
    return {**shown, "POSTGRES_PASSWORD": "postgres-password", "VALKEY_PASSWORD": "valkey-password"}


class TcpForwarder(socketserver.ThreadingTCPServer):
    """A loopback port that forwards to a Unix socket, for processes whose user may not open the socket."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.path = path
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()


class _Relay(socketserver.BaseRequestHandler):
    server: TcpForwarder

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as behind:
            behind.connect(self.server.path)
            other = {self.request: behind, behind: self.request}
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    try:
                        data = ready.recv(65536)
                        if not data:
                            return
                        other[ready].sendall(data)
                    except OSError:
                        return


class Composed:
    """The compose file's services on this machine. `variables` are those of the `.env` file."""

    def __init__(
        self, directory: Path, variables: Mapping[str, str], *, database_url: str, redis_url: str
    ) -> None:
        self.directory = directory
        self._variables = dict(variables)
        self._services = services(variables)
        self._group = ProcessGroup(grace_seconds=0.2)
        self._forwarders: list[TcpForwarder] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = {name: free_port() for name in ("gateway", "simulator", "proxy")}
        self._places = {
            f"postgresql://gateway:{variables['POSTGRES_PASSWORD']}@postgres:5432/gateway": self._over_tcp(
                database_url
            ),
            f"redis://:{variables['VALKEY_PASSWORD']}@valkey:6379/0": self._over_tcp(redis_url),
        }
        for name, port in (("gateway", 8000), ("simulator", 8100)):
            for host in (name, "0.0.0.0", "127.0.0.1"):
                self._places[f"{host}:{port}"] = f"127.0.0.1:{self.ports[name]}"
        self._places["web:8000"] = self._places["gateway:8000"]
        self._places["127.0.0.1:443"] = f"127.0.0.1:{self.ports['proxy']}"
        self._places |= {"--port=8000": f"--port={self.ports['gateway']}", "0.0.0.0": "127.0.0.1"}
        for folder in image_folders():
            place = directory / folder.strip("/")
            place.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(place, image_user(), image_user())
            self._places[f"{folder}/"] = f"{place}/"

    def _over_tcp(self, url: str) -> str:
        """The URL of the same server on a TCP port. If the server has only a Unix socket, a port is forwarded to it."""
        parts = urlsplit(url)
        if parts.scheme == "unix":
            forwarder = TcpForwarder(unquote(parts.path))
            self._forwarders.append(forwarder)
            return f"redis://{forwarder.address}/{parse_qs(parts.query).get('db', ['0'])[0]}"
        query = parse_qs(parts.query)
        if "host" not in query:
            return url
        forwarder = TcpForwarder(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
        self._forwarders.append(forwarder)
        return f"postgresql://gateway:{self._variables['POSTGRES_PASSWORD']}@{forwarder.address}{parts.path}"

    def here(self, text: str) -> str:
        """Replace addresses and folders in a value of the compose file with those of this machine.

        One pass over whole port numbers: a port of this machine may begin with one of the file's.
        """
        places = "|".join(map(re.escape, sorted(self._places, key=len, reverse=True)))
        return re.sub(rf"(?<!\d)(?:{places})(?!\d)", lambda found: self._places[found[0]], text)

    def environment(self, name: str) -> dict[str, str]:
        """The environment of a service: the variables of the image, of `.env` if the service reads it, and its own."""
        service = self._services[name]
        image = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DATA_DIR": "/data/",
            "ENVIRONMENT": image_environment()["ENVIRONMENT"],
        }
        shared = self._variables if service["env_file"] else {}
        values = {**image, **shared, **service.get("environment", {})}
        return {key: self.here(str(value)) for key, value in values.items()}

    def command(self, name: str) -> list[str]:
        """The command of a service."""
        words = words_of(self._services[name].get("command", image_command()))
        if name == "simulator":
            words = [str(self.ports["simulator"]) if word == "8100" else word for word in words]
        return [self.here(word) for word in words]

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """Start a service. Its output is appended to `<name>.log`."""
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*_as_image_user(), *self.command(name)],
                cwd=ROOT,
                env=self.environment(name),
                stdout=log,
                stderr=log,
                process_group=self._group.id,
            )
        self.processes[name] = process
        return process

    def run(self, name: str, command: list[str] | None = None) -> str:
        """Run a one-off command of a service, as its user. Returns its output."""
        done = subprocess.run(
            [*_as_image_user(), *(command or self.command(name))],
            cwd=ROOT,
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_for(self, name: str, path: str) -> None:
        """Wait until a service answers at a path. Running its health check instead would start a process each time."""

        def check_alive() -> None:
            assert self.processes[name].poll() is None, self.log(name)

        processes.wait_for_answer(self.ports[name], path, seconds=90, check_alive=check_alive)

    def is_healthy(self, name: str) -> bool:
        """Whether a service's own health check passes."""
        test = [self.here(word) for word in self._services[name]["healthcheck"]["test"][1:]]
        assert self.processes[name].poll() is None, self.log(name)
        checked = subprocess.run(
            test, env=self.environment(name), capture_output=True, timeout=30, check=False
        )
        return checked.returncode == 0

    def start_proxy(self, certificate: Path) -> Proxy:
        """Start nginx with the proxy's configuration. The file contains certificate and key."""
        proxy = Proxy(
            self.directory / "nginx",
            certificate,
            port=self.ports["proxy"],
            gateway=self.ports["gateway"],
            process_group=self._group.id,
        )
        self.processes["proxy"] = proxy.process
        return proxy

    def log(self, name: str) -> str:
        """The end of a service's output."""
        return (self.directory / f"{name}.log").read_text()[-4000:]

    def stop(self, name: str) -> None:
        """Stop a service as a container engine does: send SIGTERM, then wait."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(30)

    def close(self) -> None:
        """End all remaining processes."""
        for process in self.processes.values():
            process.kill()
            process.wait(10)
        self._group.close()
        for forwarder in self._forwarders:
            forwarder.close()


def _as_image_user() -> list[str]:
    """The prefix that makes a command line run as the image's user.

    The user may read every file, because Python may be in a folder of root. Write permissions stay as usual.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    user = image_user()
    return [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
        "--",
    ]
