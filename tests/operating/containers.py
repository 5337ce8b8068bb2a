"""`python -m tests.operating.containers`: the image and docker-compose.yml in a real container engine.

Uses Docker Compose, or else Podman with a Compose. `base_images` builds the images that no registry provides. A tenant
signs up through the TLS proxy, is approved, and gets its first deliveries. Its calls continue while each service is
replaced, restarted and crashed. Exits with 1 when a message or an event was lost or doubled, or when the proxy answered
502 or 504 for longer than 2 seconds. Without an engine, the exit message names the missing program.
"""

import http.server
import json
import os
import re
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml
from cryptography.fernet import Fernet

from tests.certificates import self_signed
from tests.free_ports import free_port
from tests.operating import base_images

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "messaging-gateway"
MOST_MEGABYTES = 400
"""The maximum size of the image. The invoice typesetter takes 67 MB. The fonts for names in every script take 39 MB."""
OPEN_FILES = 65_536
"""The limit of open files that the proxy in the compose file requires."""
MOST_BAD_GATEWAY_SECONDS = 2.0
SENDS_A_SECOND, INBOUND_A_SECOND = 4.0, 1.0
QUIET_SECONDS = 4.0
"""The time between two faults, during which calls continue."""
SETTLE_SECONDS = 180.0
STAFF, OWNER, PASSWORD = "staff@gateway.example", "owner@containers-shop.in", "correct horse battery staple"
BOTH_PROFILES = ("--profile", "sandbox", "--profile", "split")
SPLIT = ("deliveries", "batches", "tasks", "beat")
WEB = ("gateway", "gateway-2")
SERVICES = (*WEB, *SPLIT, "valkey", "postgres", "proxy")


class Failed(Exception):
    """A promise of the service is broken, or a command failed."""


def main() -> int | str:
    """Run everything. Returns 1 when a promise was broken, or a message about what is missing."""
    engine = _engine()
    if isinstance(engine, str):
        return engine
    try:
        _provide_images(engine)
        _build(engine)
        with (
            tempfile.TemporaryDirectory(prefix="gateway-compose-") as directory,
            _Stack(engine, Path(directory)) as stack,
        ):
            _run(stack)
    except Failed as failure:
        _say(f"FAILED: {failure}")
        return 1
    except base_images.MissingError as missing:
        return str(missing)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


# --- The engine and its images


class _Engine:
    def __init__(self, command: Sequence[str], compose: Sequence[str]) -> None:
        self.command, self.compose = list(command), list(compose)

    def run(self, *words: str, check: bool = True) -> str:
        """The output of a command of the engine."""
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise Failed(f"{' '.join([*self.command, *words])}: {done.stderr.strip()}")
        return done.stdout.strip()


def _engine() -> _Engine | str:
    """The container engine of this machine with its Compose, or a message about what is missing."""
    for command, composes in (
        (["docker"], (["docker", "compose"],)),
        (["podman"], (["podman-compose"], ["podman", "compose"])),
    ):
        if shutil.which(command[0]) is None or not _answers([*command, "info"]):
            continue
        for compose in composes:
            if shutil.which(compose[0]) and _answers([*compose, "version"]):
                return _Engine(command, compose)
        return f"{command[0]} runs, but it has no Compose (docker compose, or podman-compose)."
    return (
        "No container engine answers: start Docker with its Compose (Debian: apt-get install docker.io), or install "
        "podman and podman-compose."
    )


def _answers(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _provide_images(engine: _Engine) -> None:
    """Pull every public image in the files. Build substitutes for images that no registry provides."""
    services = yaml.safe_load(re.sub(r"\$\{[^}]*\}", "", (ROOT / "docker-compose.yml").read_text()))[
        "services"
    ]
    named = {service["image"] for service in services.values()} - {IMAGE}
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    named |= set(re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)) - stages
    lacking = [name for name in sorted(named) if not base_images.exists(engine.command, name)]
    lacking = [name for name in lacking if not _answers([*engine.command, "pull", name])]
    if lacking:
        _say(f"no registry gives {', '.join(lacking)}")
        base_images.build(engine.command, lacking, _say)


def _build(engine: _Engine) -> None:
    """Build the image of the Dockerfile. It must not be larger than promised."""
    began = time.monotonic()
    sha = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    done = subprocess.run(
        [*engine.command, "build", "--tag", IMAGE, "--build-arg", f"SERVICE_SHA={sha.stdout.strip()}", "."],
        cwd=ROOT,
        env={**os.environ, "DOCKER_BUILDKIT": str(int(_answers([*engine.command, "buildx", "version"])))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"the image does not build: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    megabytes = int(engine.run("image", "inspect", "--format", "{{.Size}}", IMAGE)) / 1e6
    _say(f"image: {megabytes:.0f} MB, built in {time.monotonic() - began:.0f} s")
    if megabytes > MOST_MEGABYTES:
        raise Failed(f"the image has {megabytes:.0f} MB, more than {MOST_MEGABYTES}")


# --- The services of the compose file


class _Stack:
    """A project of Compose in a folder, with a certificate and secrets made for it."""

    def __init__(self, engine: _Engine, directory: Path) -> None:
        self.engine, self.directory = engine, directory
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.project = f"gateway{os.getpid()}"
        self.environment = {**os.environ, "HTTPS_PORT": str(self.port)}
        (directory / "deploy").mkdir()
        shutil.copy(ROOT / "deploy/nginx.conf", directory / "deploy")
        text = (ROOT / "docker-compose.yml").read_text()
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if most < OPEN_FILES and not _may_raise_limits():
            _say(
                f"this machine lets no container hold more than {most} open files: "
                f"the proxy has so many, not {OPEN_FILES}"
            )
            text = text.replace(f"nofile: {OPEN_FILES}", f"nofile: {most}")
        (directory / "docker-compose.yml").write_text(text)
        tls = directory / "tls"
        tls.mkdir(mode=0o700)
        self.certificate = self_signed(tls)
        shutil.copy(self.certificate, tls / "tls.crt")
        shutil.copy(self.certificate, tls / "tls.key")
        (tls / "tls.key").chmod(0o600)
        random = secrets.token_hex
        settings = {
            "BASE_URL": self.url,
            "APP_URL": self.url,
            "SECRET_KEY": random(32),
            "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "META_APP_ID": "123456789012345",
            "META_APP_SECRET": random(16),
            "META_WEBHOOK_VERIFY_TOKEN": random(16),
            "SANDBOX_APP_SECRET": random(16),
            "SANDBOX_CONTROL_TOKEN": random(16),
            "POSTGRES_PASSWORD": random(12),
            "VALKEY_PASSWORD": random(12),
            "EMAIL_MODE": "log",
            "SUPPORT_EMAIL": "support@gateway.example",
            # The receiver is a server on this machine.
            "WEBHOOK_ALLOW_HTTP": "true",
            "WEBHOOK_ALLOW_PRIVATE_NETWORKS": "true",
            "WEBHOOK_RETRY_SCHEDULE": ",".join(["2"] * 60),
        }
        (directory / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def __enter__(self) -> "_Stack":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            logs = self.compose("logs", "--no-color", "--tail", "60", check=False)
            sys.stdout.write(logs[-12_000:])
        self.compose("down", "--volumes", "--timeout", "5", check=False)

    def compose(self, *words: str, check: bool = True) -> str:
        """The output of a command of Compose."""
        done = subprocess.run(
            [*self.engine.compose, "--project-name", self.project, *BOTH_PROFILES, *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise Failed(f"compose {' '.join(words)}: {done.stderr[-1500:]}")
        return done.stdout.strip()

    def manage(self, *words: str) -> str:
        """The output of a `manage.py` command in a container of the service."""
        return self.compose("exec", "-T", "gateway", "python", "manage.py", *words)

    def container(self, service: str) -> str:
        return self.compose("ps", "--all", "--quiet", service).splitlines()[0]

    def inspect(self, service: str, template: str) -> str:
        return self.engine.run("inspect", "--format", template, self.container(service))

    def is_up(self, service: str) -> bool:
        """Whether a service runs, and is healthy if it has a health check."""
        state = json.loads(self.inspect(service, "{{json .State}}"))
        health = state.get("Health") or state.get("Healthcheck") or {}
        return bool(state["Running"]) and health.get("Status", "healthy") in {"healthy", ""}

    def wait(self, service: str, *, seconds: float = 600.0) -> None:
        _until(lambda: self.is_up(service), f"{service} is up", seconds=seconds)

    def crash(self, service: str) -> None:
        """Kill a container's process with SIGKILL, and wait until the engine has restarted the container."""
        before = self.inspect(service, "{{.State.StartedAt}}")
        os.kill(int(self.inspect(service, "{{.State.Pid}}")), signal.SIGKILL)
        _until(
            lambda: self.inspect(service, "{{.State.StartedAt}}") != before,
            f"{service} comes back",
            seconds=60,
        )

    def replace(self) -> None:
        """Do the rolling restart of docs/operations.md: recreate one web container after another."""
        for name in WEB:
            self.compose("up", "--detach", "--no-deps", "--force-recreate", name)
            self.wait(name)

    def host_address(self) -> str:
        """The address of this machine in the services' network."""
        networks = json.loads(self.inspect("gateway", "{{json .NetworkSettings.Networks}}"))
        return str(next(iter(networks.values()))["Gateway"])


def _may_raise_limits() -> bool:
    return (
        subprocess.run(["sh", "-c", f"ulimit -n {OPEN_FILES}"], capture_output=True, check=False).returncode
        == 0
    )


def _until(holds: Callable[[], bool], what: str, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds:.0f} seconds: {what}")
        time.sleep(0.2)


# --- The tenant and its receiver


class _Receiver:
    """A tenant's server: answers pings, and stores the events that it gets."""

    def __init__(self, host: str) -> None:
        self.events: dict[str, Any] = {}
        received = self.events

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if body.get("type") == "webhook.verify":
                    answer = json.dumps({"challenge": body["challenge"]}).encode()
                else:
                    received[body["id"]], answer = body, b"ok"
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of_type(self, kind: str) -> list[Any]:
        return [event for event in list(self.events.values()) if event["type"] == kind]


class _Calls:
    """The tenant's calls through the proxy. Each send has a key and is repeated until it is answered 200."""

    def __init__(self, stack: _Stack, token: str) -> None:
        self.stack, self.token = stack, token
        self.headers = {"Authorization": f"Bearer {token}"}
        self.sender = ""
        self.sent: dict[str, str] = {}
        """The message ids in the responses, by message text."""
        self.inbound: list[str] = []
        self.bad: list[float] = []
        """The times of the proxy's 502 and 504 responses."""
        self.refused: Counter[int | str] = Counter()
        self.stopped = threading.Event()
        self.threads: list[threading.Thread] = []
        self._numbers = iter(range(1_000_000))
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        return requests.request(
            method,
            self.stack.url + path,
            json=body,
            headers=self.headers | headers,
            verify=str(self.stack.certificate),
            timeout=60,
        )

    def send(self, text: str, *, number: int) -> None:
        """Send one message. Returns once it is answered 200."""
        body = {"from": self.sender, "to": f"+9170{number:06d}77", "type": "text", "text": {"body": text}}
        key = text.replace(" ", "-")
        while (answer := self._tried("POST", "/v1/messages", body, **{"Idempotency-Key": key})) is None:
            if self.stopped.wait(0.3) and time.monotonic() > self.deadline:
                raise Failed(f"{text} was never answered 200")
        self.sent[text] = answer["messages"][0]["id"]

    def _tried(self, method: str, path: str, body: Any, **headers: str) -> Any:
        """Make one call. Returns the body of a 200 response, or None for a response that allows a repetition."""
        try:
            answer = self.call(method, path, body, **headers)
        except requests.RequestException as error:
            self.refused[type(error).__name__] += 1
            return None
        if answer.ok:
            return answer.json()
        self.refused[answer.status_code] += 1
        if answer.status_code in {502, 504} and "X-Service-Request-Id" not in answer.headers:
            self.bad.append(time.monotonic())
        elif answer.status_code not in {409, 429, 502, 503}:
            raise Failed(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return None

    def start(self) -> None:
        """Start the calls, which continue until `stop`."""
        self.deadline = float("inf")
        self.errors: list[BaseException] = []
        self.stopped.clear()
        self.threads.clear()
        for rate, call in ((SENDS_A_SECOND, self._send_next), (INBOUND_A_SECOND, self._write_next)):
            for _ in range(4):
                thread = threading.Thread(target=self._go_on, args=(call, 4 / rate))
                self.threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Let every call finish. Raises Failed when a call got an unexpected response."""
        self.deadline = time.monotonic() + 60
        self.stopped.set()
        for thread in self.threads:
            thread.join(120)
        if self.errors:
            raise Failed(str(self.errors[0]))

    def _go_on(self, call: Callable[[], None], pause: float) -> None:
        try:
            while not self.stopped.wait(pause):
                call()
        except Exception as error:  # noqa: BLE001 - `stop` raises it
            self.errors.append(error)

    def _send_next(self) -> None:
        with self._lock:
            number = next(self._numbers)
        self.send(f"message {number}", number=number)

    def _write_next(self) -> None:
        """Make the simulator send a customer's message. Only a message answered 200 counts."""
        with self._lock:
            number = next(self._numbers)
        text = f"question {number}"
        if self._tried("POST", "/v1/test/inbound", {"from": f"9171{number:06d}77", "text": text}) is not None:
            self.inbound.append(text)


def _sign_up(stack: _Stack) -> _Calls:
    """Sign up with the form, confirm with the mail's link, have staff approve, and create a key."""
    browser = requests.Session()
    browser.verify, browser.trust_env = str(stack.certificate), False
    browser.headers["Referer"] = stack.url

    def post(path: str, fields: dict[str, str]) -> requests.Response:
        page = browser.get(stack.url + path, timeout=60)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        if token is None:
            raise Failed(f"{path} has no form: {page.status_code}")
        return browser.post(stack.url + path, fields | {"csrfmiddlewaretoken": token[1]}, timeout=60)

    application = {
        "email": OWNER,
        "password": PASSWORD,
        "phone": "+91 98000 00001",
        "company": "Containers Shop Limited",
        "website": "www.containers-shop.in",
        "tax_id": "29AAACI1681G1ZL",
        "address": "44 Electronics City",
        "city": "Bengaluru",
        "pin_code": "560100",
        "state_code": "29",
    }
    if not (answer := post("/sign-up", application)).url.endswith("/sign-up/sent"):
        raise Failed(f"the sign-up was refused: {re.findall(r'errorlist.*', answer.text)}")
    stack.compose(
        *("exec", "-T", "--env", f"DJANGO_SUPERUSER_PASSWORD={PASSWORD}", "gateway"),
        *("python", "manage.py", "createsuperuser", "--no-input", "--email", STAFF),
    )
    staff = _Calls(stack, stack.manage("console_token", STAFF).splitlines()[-1])
    mail = staff.call("GET", f"/v1/admin/mail/last?email={OWNER}").json()
    confirmed = post(mail["links"][0].removeprefix(stack.url), {})
    if "your address is confirmed" not in confirmed.text:
        raise Failed("the address was not confirmed")
    [tenant] = staff.call("GET", "/v1/admin/tenants").json()["data"]
    approved = staff.call("POST", f"/v1/admin/tenants/{tenant['id']}/approve")
    if not approved.ok:
        raise Failed(f"not approved: {approved.text}")
    return _Calls(
        stack, stack.manage("create_key", "--tenant", tenant["id"], "--environment", "test").splitlines()[-1]
    )


# --- The run


def _run(stack: _Stack) -> None:
    began = time.monotonic()
    stack.compose("up", "--detach", *WEB, "proxy", "simulator")
    for name in (*WEB, "proxy", "simulator"):
        stack.wait(name)
    _say(f"the small host is up after {time.monotonic() - began:.0f} s")
    _check_closed(stack)
    business = _sign_up(stack)
    receiver = _Receiver(stack.host_address())
    made = business.call("POST", "/v1/webhooks", {"url": receiver.url})
    if made.json().get("status") != "active":
        raise Failed(f"the endpoint is not active: {made.text}")
    first = business.call("POST", "/v1/test/inbound", {"from": "919812345678", "text": "Hello"})
    if not first.ok:
        raise Failed(f"no customer can write: {first.text}")
    business.sender = first.json()["phone_number_id"]
    business.send("first message", number=0)
    business.inbound.append("Hello")
    _until(lambda: not _lost(business, receiver), "the first deliveries", seconds=60)
    _say("from sign-up to delivery: done")
    business.start()
    try:
        with _fault("each web container made anew", business):
            stack.replace()
        with _fault("split: web containers made anew, each role in a container", business):
            stack.environment["ROLES"] = "web"
            stack.compose("up", "--detach", "--no-deps", *SPLIT)
            stack.replace()
        for name in SERVICES:
            with _fault(f"restart {name}", business):
                stack.compose("restart", "--timeout", "40", name)
                stack.wait(name)
        for name in SERVICES:
            with _fault(f"crash {name}", business):
                stack.crash(name)
                stack.wait(name)
    finally:
        business.stop()
    _settle(business, receiver)
    _check_outcome(stack, business, receiver)
    # The simulator restarts last, because a restart deletes the messages that it received.
    business.start()
    try:
        with _fault("restart simulator", business):
            stack.compose("restart", "--timeout", "40", "simulator")
            stack.wait("simulator")
    finally:
        business.stop()
    _settle(business, receiver)
    if lost := _lost(business, receiver):
        raise Failed(f"lost {lost[:10]}")


@contextmanager
def _fault(name: str, business: _Calls) -> Iterator[None]:
    """Observe the load during the fault in the block. The proxy may answer 502 and 504 for a limited time."""
    began, before, answered = time.monotonic(), Counter(business.refused), len(business.sent)
    yield
    over = time.monotonic()
    deadline = over + QUIET_SECONDS
    while time.monotonic() < deadline:
        if business.errors:
            raise Failed(str(business.errors[0]))
        time.sleep(0.1)
    bad = [at for at in business.bad if at >= began]
    span = bad[-1] - bad[0] if bad else 0.0
    refused = ", ".join(
        f"{count} × {what}" for what, count in sorted((business.refused - before).items(), key=str)
    )
    _say(
        f"{name}: {over - began:.1f} s, {len(business.sent) - answered} sends, {refused or 'nothing refused'}"
        + (f", 502 or 504 for {span:.1f} s" if bad else "")
    )
    if span > MOST_BAD_GATEWAY_SECONDS:
        raise Failed(f"{name}: the proxy answered 502 or 504 for {span:.1f} s")


def _check_closed(stack: _Stack) -> None:
    """Check that the containers cannot write to their root, gain privileges or read foreign secrets."""
    for name in (*WEB, "valkey", "proxy", "postgres", "simulator"):
        host = json.loads(stack.inspect(name, "{{json .HostConfig}}"))
        if not host["ReadonlyRootfs"] or not any(
            "no-new-privileges" in each for each in host["SecurityOpt"] or []
        ):
            raise Failed(f"{name} may write into its root or gain privileges")
    identity = stack.compose(
        "exec", "-T", "gateway", "sh", "-c", "id -u; touch /app/x 2>&1; env | grep -c SECRET_KEY"
    )
    if identity.splitlines()[0] != "10001" or "Read-only" not in identity:
        raise Failed(f"the service's container: {identity}")
    environment = json.loads(stack.inspect("simulator", "{{json .Config.Env}}"))
    if any(line.startswith(("SECRET_KEY=", "ENCRYPTION_KEYS=", "DATABASE_URL=")) for line in environment):
        raise Failed("the simulator has secrets of the service")


def _lost(business: _Calls, receiver: _Receiver) -> list[str]:
    """Sends and customers' messages that were answered 200 and have not arrived as events."""
    outbound = {event["wamid"] for event in receiver.of_type("message.outbound")}
    texts = {json.dumps(event["data"]) for event in receiver.of_type("message.inbound")}
    written = {text for text in business.inbound if any(f'"{text}"' in each for each in texts)}
    return [text for text, wamid in list(business.sent.items()) if wamid not in outbound] + [
        text for text in business.inbound if text not in written
    ]


def _settle(business: _Calls, receiver: _Receiver) -> None:
    """Wait until no event is missing, or the time is over. `_check_outcome` reports missing events."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while _lost(business, receiver) and time.monotonic() < deadline:
        time.sleep(1)


def _check_outcome(stack: _Stack, business: _Calls, receiver: _Receiver) -> None:
    """Check that nothing was lost or doubled, according to the receiver and the simulator."""
    lost = _lost(business, receiver)
    ids: dict[str, set[str]] = defaultdict(set)
    for event in receiver.of_type("message.outbound"):
        ids[event["data"]["request"]["text"]["body"]].add(event["wamid"])
    for event in receiver.of_type("message.inbound"):
        ids[event["dedupe_key"]].add(event["id"])
    doubled = [text for text, found in ids.items() if len(found) > 1]
    upstream = _sent_upstream(stack, business)
    doubled += [text for text, times in upstream.items() if times > 1]
    never = [text for text in business.sent if not upstream[text]]
    _say(
        f"{len(business.sent)} sends and {len(business.inbound)} customers' messages answered 200, "
        f"{len(receiver.events)} events arrived: {len(lost) + len(never)} lost, {len(doubled)} doubled"
    )
    if lost or doubled or never:
        raise Failed(f"lost {lost[:10]}, doubled {doubled[:10]}, never sent {never[:10]}")


def _sent_upstream(stack: _Stack, business: _Calls) -> Counter[str]:
    """How often each text reached the simulator."""
    script = (
        "import json, os, urllib.request as r\n"
        "headers = {'Authorization': 'Bearer ' + os.environ['SIMULATOR_CONTROL_TOKEN']}\n"
        f"url = 'http://127.0.0.1:8100/sim/messages?direction=outbound&limit=100000&phone_number_id={business.sender}'\n"
        "print(r.urlopen(r.Request(url, headers=headers)).read().decode())"
    )
    listed = json.loads(stack.compose("exec", "-T", "simulator", "python", "-c", script))["data"]
    texts = re.compile(r'"body": "((?:first message|message \d+))"')
    return Counter(found for message in listed for found in set(texts.findall(json.dumps(message))))


if __name__ == "__main__":
    sys.exit(main())
