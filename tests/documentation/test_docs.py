"""Errors, pages, routes, settings, commands, processes, figures and limits in the docs match the code."""

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.urls import Resolver404, resolve

import gateway.urls as _everything  # noqa: F401 - the test compares what its modules define with the docs
import messaging.sending.journal_replay as _replay  # noqa: F401 - it defines metrics of a web process
from billing.payments.provider import PAGES_A_DAY
from console import keys, log_in_and_passkeys
from gateway import checks
from gateway.__main__ import QUEUES, ROLES
from gateway.api import authentication, pagination
from gateway.api import limits as body_size
from gateway.api import limits as throttling
from gateway.api.errors import error_kinds
from gateway.local_run import supervisor
from gateway.meta_errors import error_code
from gateway.monitoring import admin_health, metrics
from gateway.roles import KeyScope
from gateway.upstream.notifications.normalise import FIELDS
from messaging import csv_batches, data_export, idempotency, pacing
from messaging.batches import body, scheduled_messages
from messaging.batches import lifecycle as batch_lifecycle
from messaging.media import uploads
from phone_numbers.hosted_connect import sessions
from phone_numbers.sandbox import control
from simulator import customers
from simulator.errors import CATALOGUE
from simulator.settings import Keep
from simulator.world import conversation_log, media_store
from simulator.world import state as world
from tenants import audit, device_login, platform_apps
from tenants.connected_apps import connections
from tenants.credentials import api_keys
from tenants.models import Tenant
from tenants.team import members
from tests.pages import PAGES, ROOT, blocks, page
from web import django_threads, open_streams, strangers
from web.routes import ROUTES
from webhooks.delivery import caps, ordering
from webhooks.destinations import archives
from webhooks.endpoints import lifecycle
from webhooks.requests import verify_ping
from webhooks.templatetags import delivery_errors

UUID = "01a1fcf7-c4b7-7114-8090-8d27a4cd24a9"


NOT_SETTINGS = {
    "APP_RECONNECTED",
    "APP_REMOVED",
    "API_KEY",
    "APP_KEY",
    "WEBHOOK_SECRET",
    "SIMULATOR_BASE_URL",
    "SIMULATOR_CONTROL_TOKEN",
    "SIMULATOR_STATE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
}
"""Variables of the reader's shell, of the simulator, and of OpenTelemetry's SDK."""
FORMER_SETTINGS = {
    "BATCH_LEASE_SECONDS",
    "BILLING_MIN_CONNECTED_HOURS",
    "DATABASE_POOL_SIZE",
    "DELIVERY_LEASE_SECONDS",
    "DELIVERY_TENANT_CONCURRENCY",
    "EMBEDDED_SIGNUP_SDK_URL",
    "OTEL_SERVICE_NAME",
    "RAZORPAY_TIMEOUT_SECONDS",
    "WEBHOOK_REPLAY_PER_SECOND",
    "WEBHOOK_VERIFY_TIMEOUT_MS",
}
"""Settings that operators should remove, according to the changelog."""
LOG_WORDS = {"level", "error", "event", "request", "status", "wb_ms", "meta_ms"}


def rows(name: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without the header of the table."""
    under = re.split(rf"^#+ {re.escape(heading)}\n", page(name), flags=re.MULTILINE)[1]
    lines = re.findall(r"^\|.*\|$", under.split("\n#")[0], re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_code_of_whatsapp_that_the_sandbox_answers_is_explained() -> None:
    assert [code for code in CATALOGUE if error_code(code) is None] == []


def test_every_error_code_is_documented_with_its_status_cause_and_fix() -> None:
    table = rows("docs/errors.md", "Codes of the service")
    documented = {(status, code.strip("`")) for status, code, *_ in table}
    defined = {(str(error.status), error.code) for error in error_kinds()}
    assert defined - documented == set(), "raised but not in docs/errors.md"
    assert documented - defined == set(), "in docs/errors.md but never raised"
    assert [row for row in table if len(row) != 6 or not all(row)] == []
    repeats = {(str(error.status), error.code): error.repeat for error in error_kinds()}
    assert {(status, code.strip("`")): again for status, code, _, _, again, _ in table} == repeats


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", page("README.md")))
    assert {name for name in PAGES if name.startswith("docs/")} == linked


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page(name)):
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), f"{name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{name} links to {target}#{anchor}"


@pytest.mark.parametrize("name", PAGES)
def test_every_path_of_the_repository_exists(name: str) -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", page(name)):
        assert (ROOT / path).exists(), f"{name} names {path}"


@pytest.mark.parametrize("name", PAGES)
def test_every_route_exists(name: str) -> None:
    text = re.sub(r"\$\w+(?=[/`\" ?])", UUID, page(name).replace("$BASE_URL", ""))
    named = r"(?:\b[A-Z]{3,6}`? +`?|[ `\"])(/(?:v1|upstream|internal)/[\w/{}.-]*[\w}])(?![\w{}*|…/])"
    for path in re.findall(named, text):
        if path in ROUTES:
            continue
        try:
            resolve(re.sub(r"\{\w+\}", UUID, path))
        except Resolver404:
            pytest.fail(f"{path} is in {name} and not in the service", pytrace=False)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_exists(name: str) -> None:
    tasks = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|    )make ([a-z0-9]+)", page(name))) <= tasks
    assert set(re.findall(r"manage\.py ([a-z_]+)", page(name))) <= set(get_commands())


def test_every_test_that_a_task_names_exists() -> None:
    """Without this test, a renamed test would be noticed only when the task is run."""
    command = ["make", "--dry-run", "citus", "faults", "flows"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"([\w/]+\.py)\b(?:::[\w:]*?(\w+)(?= |$))?", printed, re.MULTILINE)
    assert len(named) > 50
    files = {path: (ROOT / path).read_text() if (ROOT / path).exists() else "" for path, _ in named}
    assert [path for path, text in files.items() if not text] == []
    assert [test for path, test in named if test and f"def {test}(" not in files[path]] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_exists(name: str) -> None:
    known = set(re.findall(r"^# ([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    groups = {setting.split("_")[0] for setting in known if "_" in setting}
    named = set(re.findall(r"\b([A-Z]+_[A-Z_]+[A-Z])\b", page(name)))
    files = {f"{setting}_FILE" for setting in known}
    former = FORMER_SETTINGS if name == "docs/changelog.md" else set()
    assert {
        word for word in named if word.split("_")[0] in groups
    } - known - files - former - NOT_SETTINGS == set()


def test_the_first_start_without_the_image_builds_what_the_image_contains() -> None:
    first_start = page("docs/operations.md").split("\n## First start\n")[1].split("\n## ")[0]
    steps = r"\b(mkdocs build|generator\.\w+|manage\.py collectstatic)\b"
    built = {"mkdocs build", "generator.package_index", "manage.py collectstatic"}
    assert set(re.findall(steps, (ROOT / "Dockerfile").read_text())) == built
    assert set(re.findall(steps, first_start)) == built


def test_every_check_is_listed() -> None:
    ids = set(re.findall(r'"(gateway\.[EW]\d+)"', Path(checks.__file__).read_text()))
    tables = ("The deployment check", "The servers")
    assert sorted(row[0] for table in tables for row in rows("docs/operations.md", table)) == sorted(ids)


def test_the_table_of_processes_is_what_make_run_and_compose_start(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {row[0]: row[1].strip("`").split() for row in rows("docs/operations.md", "Processes")}
    roles = {name for name in table if name not in {"all roles", "simulator"}}
    assert roles == set(ROLES)
    for role in roles:
        assert table[role][:4] == ["python", "-m", "gateway", role]
    small = supervisor._children(ROOT, 0)
    monkeypatch.setenv("ROLES", "split")
    split = supervisor._children(ROOT, 0)
    assert set(small) - {"postgres", "valkey"} == {"gateway", "simulator"}
    assert set(split) - {"postgres", "valkey", "simulator"} == roles
    commands = {name: child._start.args[1][1:] for name, child in (small | split).items() if name in roles}  # type: ignore[attr-defined]
    assert all(command == ["-m", "gateway", role] for role, command in commands.items())
    image = re.search(r"^CMD (.*)", page("Dockerfile").replace("\\\n", ""), re.MULTILINE)
    assert image is not None
    assert json.loads(image[1]) == table["all roles"]
    assert [row[0] for row in rows("docs/architecture.md", "Processes")] == list(table)
    routed = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()}
    assert set(QUEUES.values()) == routed | {settings.CELERY_TASK_DEFAULT_QUEUE}


@pytest.mark.django_db
def test_every_figure_to_watch_exists() -> None:
    figures = re.findall(
        r"`(\w+)`", " ".join(row[0] for row in rows("docs/operations.md", "Figures to watch"))
    )
    assert set(figures) - set(metrics.names()) - set(admin_health.report()) - LOG_WORDS == set()
    for name in PAGES:
        named = set(re.findall(r"`(gateway_[a-z_]+)", page(name)))
        assert named <= set(metrics.names()), name


LIMITS = (
    "Calls",
    "What a business can have",
    "What a platform can have",
    "What a sandbox keeps",
    "How long things last",
    "Without credentials",
)


def test_the_scopes_are_the_codes() -> None:
    assert [row[0].strip("`") for row in rows("docs/authentication.md", "Scopes")] == [*KeyScope]


def test_who_makes_a_key_sees_that_it_may_erase_or_export_customers() -> None:
    scopes = {
        operation["x-scope"]
        for path in json.loads(page("docs/openapi.json"))["paths"].values()
        for operation in path.values()
        if operation.get("tags") == ["Customer data"]
    }
    assert scopes == {"settings", "events"}
    shown = dict(keys.SCOPES)
    for name, opens in rows("docs/authentication.md", "Scopes"):
        if name.strip("`") in scopes:
            assert "(customer-data.md" in opens, name
    assert "erasing customers" in shown["settings"]
    assert "exports of all data" in shown["events"]


def test_the_limits_are_the_codes() -> None:
    def hours(period: timedelta) -> int:
        return round(period.total_seconds() / 3600)

    limits = {row[0]: row[1] for heading in LIMITS for row in rows("docs/limits.md", heading)}
    mib = 1024 * 1024
    rate, burst = settings.API_RATE_PER_SECOND, settings.API_RATE_BURST
    assert limits["requests of one business"].startswith(f"{rate:.0f} a second, {burst} at once")
    assert limits["body"] == (
        f"{body_size.API_BODY_BYTES // mib} MiB; batches {body.MAX_BODY_BYTES // mib} MiB, "
        f"media, header samples and pictures of groups {uploads.MAX_FILE_BYTES // mib} MiB"
    )
    assert limits["pages of the console of one person"] == (
        f"{throttling.PAGES_PER_SECOND:.0f} a second, {throttling.PAGES_AT_ONCE} at once; then 429. "
        f"A page counts once more for every {throttling.PAGE_CPU_SECONDS * 1000:.0f} ms that it computes"
    )
    assert limits["requests of the console of one business"] == (
        f"{django_threads.PAGES_AT_ONCE} in progress and {django_threads.MOST_WAITING_PAGES} that wait, then 429"
    )
    assert limits["bytes of larger bodies of one business"] == (
        f"{throttling.BYTES_PER_SECOND // mib} MiB a second, {throttling.BYTES_AT_ONCE // mib} MiB at once; then 429. "
        f"Bodies of up to {body_size.SMALL_BODY_BYTES // 1024} KiB do not count"
    )
    assert limits["messages in a batch"] == f"{body.MAX_MESSAGES:,}"
    assert limits["events in one request of a webhook"] == (
        f"{caps.MOST_BATCH_EVENTS} with `batch`, {ordering.LONGEST_LINE} with `quiet_seconds`"
    )
    assert limits["events in an object of an archive"] == f"{archives.FULL_OBJECT:,}"
    assert (
        limits["`Idempotency-Key`"]
        == f"1 to 255 characters, remembered for {hours(idempotency.WINDOW)} hours"
    )
    assert limits["files of [exports](customer-data.md#export-data) and of lists"] == (
        f"{data_export.MOST_KEPT_BYTES // mib:,} MiB in all, compressed"
    )
    assert limits["wait for WhatsApp"] == f"{settings.UPSTREAM_TIMEOUT_MS:,} ms"
    assert limits["verify ping"] == f"{verify_ping.VERIFY_SECONDS * 1000:,.0f} ms"
    assert limits["webhook endpoints"] == f"{lifecycle.MOST_ENDPOINTS} in each environment"
    for name in ("API keys that work", "platform keys that work"):
        assert limits[name] == f"{api_keys.MOST_KEYS} in each environment"
    assert limits["numbers of one limited key"] == str(api_keys.MOST_NUMBERS)
    assert limits["event streams"].startswith(f"{open_streams.STREAMS_PER_TENANT} (")
    assert limits["open connect sessions"] == f"{sessions.MOST_OPEN} in each environment"
    assert limits["messages of batches that wait"] == (
        f"{batch_lifecycle.MOST_WAITING_ITEMS:,} and {batch_lifecycle.MOST_WAITING_BYTES // mib:,} MiB "
        "in each environment"
    )
    assert limits["scheduled messages"] == f"{scheduled_messages.MOST_SCHEDULED:,} in each environment"
    assert limits["changes in the audit log"] == f"{audit.MOST_A_DAY:,} in 24 hours"
    assert limits["sandbox numbers"] == str(control.MOST_NUMBERS)
    assert limits["sandbox tenants"] == str(platform_apps.MOST_SANDBOX_TENANTS)
    assert limits["files of an account"] == (
        f"{media_store.MOST_BYTES_OF_ACCOUNT // mib} MiB, uploads for templates and profiles "
        f"{world.MOST_UPLOAD_BYTES_OF_ACCOUNT // mib} MiB more"
    )
    assert limits["messages of a number"] == (
        f"{Keep().messages_of_number:,}, {conversation_log.MOST_BYTES_OF_NUMBER // mib} MiB"
    )
    assert limits["customers of an account"] == f"{customers.MOST_OF_ACCOUNT:,}"
    rest = "everything else of an account: templates, flows, groups, codes"
    assert limits[rest] == (
        f"{world.MOST_BYTES_OF_ACCOUNT // mib} MiB; {world.LEAST_BYTES_OF_ACCOUNT // mib} MiB while all sandboxes "
        f"together have more than {world.MOST_BYTES_OF_OBJECTS // mib} MiB"
    )
    assert limits["files of all sandboxes together"] == (
        f"{media_store.MOST_BYTES // mib} MiB, uploads for templates and profiles "
        f"{world.MOST_UPLOAD_BYTES // mib} MiB more"
    )
    assert (
        f"Files have fixed limits: {media_store.MOST_BYTES // mib} MiB in all, "
        f"{media_store.MOST_BYTES_OF_ACCOUNT // mib} MiB for an account"
    ) in page("docs/simulator.md")
    assert limits["messages of all sandboxes together"] == (
        f"{Keep().messages:,}, {conversation_log.MOST_BYTES // mib} MiB"
    )
    assert limits["members of a team"].startswith(f"{members.MOST_PEOPLE},")
    for name in ("pages for autopay mandates", "payment links of an invoice"):
        assert limits[name] == f"{PAGES_A_DAY} in 24 hours"
    assert limits["passkeys of a member"] == str(log_in_and_passkeys.MOST_PASSKEYS)
    assert limits["uploaded CSV files that wait"] == str(csv_batches.MOST_FILES)
    assert limits["key of a device log-in"] == f"{device_login.KEY_LIFETIME.days} days"
    assert limits["connected apps"] == str(connections.MOST_CONNECTIONS)
    assert limits["connected app"] == (
        f"{connections.LIFETIME.days} days; its access token {hours(connections.ACCESS_LIFETIME)} hour, "
        "its code 1 minute"
    )
    assert timedelta(minutes=1) == connections.CODE_LIFETIME
    assert settings.ACCOUNT_RATE_LIMITS["app_registration"] == "100/h/ip"
    assert limits["registered apps"].startswith("100 from an address in an hour; an app that nobody connects")
    assert limits["registered apps"].endswith("any other a year after it was last connected")
    assert timedelta(days=1) == connections.UNUSED_CLIENT_LIFETIME
    assert timedelta(days=365) == connections.USED_CLIENT_LIFETIME
    assert settings.ACCOUNT_RATE_LIMITS["app_token"] == "600/m/ip"
    assert limits["tokens of connected apps"] == "600 from an address in a minute"
    begun, redeemed = (
        settings.ACCOUNT_RATE_LIMITS["device_login"],
        settings.ACCOUNT_RATE_LIMITS["device_redeem"],
    )
    assert (begun, redeemed) == ("30/10m/ip", "600/m/ip,30/m/key")
    assert limits["started device log-ins"] == "30 from an address in 10 minutes"
    assert limits["redeemed device log-ins"] == "600 from an address and 30 for a code in a minute"
    assert limits["requests from an address"] == (
        f"{strangers.AT_ONCE} in progress and {strangers.MOST_WAITING} that wait, then 429 after one or two seconds; "
        f"a refused request keeps its place for {strangers.FAILED_SECONDS} seconds more"
    )
    assert strangers.REFUSED_SECONDS == 1
    suspect = (
        "notifications from an address that has sent one with an invalid signature or an incomplete body"
    )
    assert limits[suspect] == f"the same limits, for {strangers.SUSPECT_SECONDS:.0f} seconds"
    assert f"in the last {authentication.KNOWN_SECONDS / 60:.0f} minutes" in page("docs/limits.md")
    assert limits["overlap of a rotated API key"] == f"{hours(api_keys.ROTATION_OVERLAP)} hours"
    assert limits["connect session"] == f"{hours(sessions.LIFETIME)} hour"
    *days, last = (str(days) for days in Tenant.Retention.values)
    default = Tenant._meta.get_field("retention_days").default
    assert limits["retention of event bodies"] == f"{', '.join(days)} or {last} days, default {default}"
    limit = f"`limit` can be 1 to {pagination.MAX_LIMIT}; the default is {pagination.DEFAULT_LIMIT}"
    assert limit in " ".join(page("docs/api.md").split())
    assert f"`X-Service-Version: {settings.API_VERSION}`" in page("docs/api.md")


def test_the_sizes_of_the_capacity_page_are_its_formulas() -> None:
    text = " ".join(page("docs/capacity.md").split())
    costs = re.findall(r"([\d.]+) ms of (?:web|deliveries|Postgres|Valkey)[ ,]", text)[:4]
    [kilobytes] = re.findall(r"and ([\d.]+) kB of disk", text)
    for messages, peak, *cells in rows("docs/capacity.md", "Sizes")[:4]:
        a_day = int(messages.removesuffix(" million").replace(",", "")) * 1_000_000
        a_second = a_day / 86_400 * 5
        assert float(peak.replace(",", "")) == pytest.approx(a_second, rel=0.01)
        for cell, milliseconds in zip(cells[:4], costs, strict=True):
            # The page rounds the costs and the cores.
            assert float(cell) == pytest.approx(a_second * float(milliseconds) / 600, rel=0.07, abs=0.05)
        terabytes = a_day * float(kilobytes) / 1e9 * 90
        assert float(cells[5].removesuffix(" TB").replace(",", "")) == pytest.approx(terabytes, rel=0.07)
        if messages == "10 million":
            assert f"10 million messages a day with 90 days of bodies need {terabytes:.0f} TB" in text


def test_the_pace_of_a_batch_is_the_codes() -> None:
    paces = [int(row[1].replace(",", "")) for row in rows("docs/batches.md", "The pace")]
    assert paces == [pacing.RATES["STANDARD"], pacing.RATES["HIGH"], pacing.COEXISTENCE_RATE]
    assert pacing.RATES["STANDARD"] == pacing.UNKNOWN_RATE
    assert f"lease of {settings.BATCH_LEASE_SECONDS:.0f} seconds" in page("docs/batches.md")


def test_the_retry_schedule_is_the_default() -> None:
    units = {"s": 1, "min": 60, "h": 3600}
    schedule = re.search(r"The waits between them are ([\w ,\s]*), each", page("docs/webhooks.md"))
    assert schedule is not None
    steps = [number * units[unit] for number, unit in steps_of(schedule[1])]
    assert steps == settings.WEBHOOK_RETRY_SCHEDULE


def test_each_error_of_a_delivery_is_explained() -> None:
    explained = page("docs/webhooks.md").partition("`last_error` says why:")[2].partition("`attempt_log`")[0]
    named = {
        name
        for row in re.findall(r"^\| (`[^|]+)", explained, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert named - {"last_error"} == delivery_errors.WORDS.keys() - {"wrong_answer"}, (
        "only a ping has wrong_answer"
    )


def steps_of(text: str) -> list[tuple[int, str]]:
    return [(int(number), unit) for number, unit in re.findall(r"(\d+)\s(\w+)", text)]


def test_the_samples_of_the_webhooks_page_are_one_of_each_language() -> None:
    assert [len(blocks("docs/webhooks.md", language)) for language in ("python", "js", "go")] == [1, 1, 1]


def test_the_fields_to_subscribe_are_understood() -> None:
    _, _, listed = page("docs/architecture.md").partition("Subscribe the app at Meta to these fields: ")
    fields = set(re.findall(r"\w+", listed))
    assert "messages" in fields
    assert fields - set(FIELDS) == set()


def test_the_table_of_dependencies_is_what_is_installed() -> None:
    pinned = re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?==([^ \\]+)", page("requirements.txt"), re.MULTILINE)
    asked = set(re.findall(r"^([\w.-]+)", page("requirements.in"), re.MULTILINE))
    table = rows("docs/dependencies.md", "Dependencies")
    assert [(name, version) for name, version, *_ in table] == pinned
    assert {row[0] for row in table if row[3:] == ["yes"]} == asked
