"""The Helm chart names the processes of docs/operations.md, and only settings that exist. `make chart` renders the
chart.

No shipped proxy routes strangers to the metrics.
"""

import re
from pathlib import Path

import yaml

from gateway import environment
from gateway.__main__ import ROLES, STOP_SECONDS
from simulator import request_log
from simulator.world import conversation_log, media_store, state
from tests.pages import page
from webhooks.endpoints.lifecycle import LONGEST_TIMEOUT_SECONDS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "chart"


def test_its_processes_have_every_role_once() -> None:
    processes = yaml.safe_load((CHART / "values.yaml").read_text())["processes"]
    assert sorted(role for process in processes.values() for role in process["roles"]) == sorted(ROLES)
    assert {name for name, process in processes.items() if "paths" in process} == {"web"}


def test_its_settings_exist() -> None:
    known = set(re.findall(r"^# ([A-Z_]+)=", page(".env.example"), re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values["settings"]) | set(values["secret"]["keys"]) <= known
    set_by_the_chart = re.findall(r"^([A-Z_]+): ", (CHART / "templates/_pod.tpl").read_text(), re.MULTILINE)
    assert set_by_the_chart
    assert set(set_by_the_chart) <= known


def test_a_number_among_its_settings_keeps_its_digits() -> None:
    """`make chart` renders such settings. Helm's `quote` would write a large number as 1e+06."""
    templates = "".join(file.read_text() for file in (CHART / "templates").iterdir())
    [settings] = re.findall(r'define "gateway.settings" -}}.*?\n{{- end }}\n{{- end }}', templates, re.DOTALL)
    assert "$value" in settings
    assert "$value | quote" not in settings
    assert not re.search(r"settings\.\w+_ID\b[^}]*\| quote", templates)


def test_what_all_sandboxes_keep_together_fits_in_the_simulators_memory() -> None:
    """The rest is for the process itself, and for parsed objects, which are larger than their JSON."""
    most = [
        conversation_log.MOST_BYTES,
        media_store.MOST_BYTES,
        request_log.MOST_BYTES,
        state.MOST_BYTES_OF_OBJECTS,
        state.MOST_UPLOAD_BYTES,
    ]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    memory = int(values["simulator"]["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert sum(most) <= 0.6 * memory


def test_a_change_of_any_setting_restarts_the_processes() -> None:
    settings = (CHART / "templates/settings.yaml").read_text()
    processes = (CHART / "templates/processes.yaml").read_text()
    [given] = re.findall(r"^data: \{\{ include \"(\S+)\"", settings, re.MULTILINE)
    [hashed] = re.findall(r"checksum/settings: \{\{ include \"(\S+)\" \$ \| sha256sum \}\}", processes)
    assert hashed == given


def test_it_asks_for_every_secret_that_a_process_needs() -> None:
    template = (CHART / "templates/settings.yaml").read_text()
    asked = [set(re.findall(r'"([A-Z_]+)"', line)) for line in re.findall(r"\$needed :?= .*", template)]
    needed = [
        {secret.name for secret in environment._SECRETS if secret.used_by == part}
        for part in ("service", "sandbox", "billing")
    ]
    assert asked == needed


def test_its_scraped_job_is_the_one_of_the_alerts() -> None:
    monitor = (CHART / "templates/monitor.yaml").read_text()
    [job] = re.findall(r"- targetLabel: job\n +replacement: (\w+)\n", monitor)
    assert set(re.findall(r'job="(\w+)"', (DEPLOY / "monitoring/alerts.yml").read_text())) == {job}


def test_a_process_may_end_its_calls_before_it_is_killed() -> None:
    """First the attempts end, then the tasks, then the last traces are sent. In a pod, preStop comes before all."""
    longest = LONGEST_TIMEOUT_SECONDS + STOP_SECONDS + 2
    services = yaml.safe_load(page("docker-compose.yml"))["services"]
    pod = (CHART / "templates/_pod.tpl").read_text()
    [given] = re.findall(r"terminationGracePeriodSeconds: (\d+)", pod)
    [before] = re.findall(r'command: \[sleep, "(\d+)"\]', pod)
    assert int(given) - int(before) >= longest
    assert int(services["gateway"]["stop_grace_period"].removesuffix("s")) >= longest


def test_no_stranger_reads_the_metrics() -> None:
    assert re.search(r"location = /metrics +\{ return 404; \}", (DEPLOY / "nginx.conf").read_text())
    published = {
        name: service["ports"]
        for name, service in yaml.safe_load(page("docker-compose.yml"))["services"].items()
        if "ports" in service
    }
    assert set(published) == {"proxy"}, "every other service would answer past the proxy"
