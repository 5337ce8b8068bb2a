"""`python -m tests.operating.chart TOOLS`: lint and render the Helm chart, and check its objects, routes and alert
rules.

`make chart` installs helm, kubeconform and the Kubernetes schemas in the folder TOOLS. The schemas refer to a file of
definitions by a network address, so kubeconform gets copies that contain the definitions.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
KUBERNETES = ("1.27.0", "1.31.0", "1.36.0")
NOTIFICATIONS_APART = "notifications apart"
GATEWAY_API = "with the Gateway API and the Prometheus operator"
SANDBOX = "with the simulator"
NUMBERS = "with numbers as settings"
AS_NUMBERS = {
    "META_APP_ID": "123456789012345",
    "SECURE_HSTS_SECONDS": "31536000",
    "OTEL_TRACES_SAMPLER_ARG": "0.01",
}
OTHERS_KINDS = "ScaledObject,HTTPRoute,ServiceMonitor"
"""Kinds of other projects. Kubernetes has no schema for them."""
VARIANTS: dict[str, list[str]] = {
    "as it is": [],
    NOTIFICATIONS_APART: [
        "--set-json",
        'processes.notifications={"roles":["web"],"paths":["/upstream/webhook","/v1/health"],"replicas":2,'
        '"resources":{},"autoscaling":{"enabled":false}}',
    ],
    "with KEDA": ["--set", "keda.enabled=true"],
    GATEWAY_API: ["--set", "gateway.enabled=true,serviceMonitor.enabled=true"],
    SANDBOX: [
        "--set",
        "simulator.enabled=true,settings.SANDBOX_GRAPH_URL=http://gateway-simulator:8100",
        "--set",
        "secret.keys={SECRET_KEY,ENCRYPTION_KEYS,DATABASE_URL,REDIS_URL,META_APP_SECRET,META_WEBHOOK_VERIFY_TOKEN,"
        "SANDBOX_APP_SECRET,SANDBOX_CONTROL_TOKEN}",
    ],
    NUMBERS: [
        each for name, value in AS_NUMBERS.items() for each in ("--set-json", f"settings.{name}={value}")
    ],
    "with the operator's texts": [
        "--set-json",
        'extraVolumes=[{"name":"texts","configMap":{"name":"texts"}}],'
        'extraVolumeMounts=[{"name":"texts","mountPath":"/texts"}]',
    ],
    "behind a pooler": [
        "--set",
        "preparedStatements=false,migration.databaseUrlKey=DATABASE_DIRECT_URL,imagePullSecrets[0].name=registry",
    ],
}

REFUSED: dict[str, list[str]] = {
    "settings.TRUSTED_PROXY_COUNT=": ["TRUSTED_PROXY_COUNT"],
    "secret.keys={SECRET_KEY,REDIS_URL}": ["ENCRYPTION_KEYS", "DATABASE_URL", "META_APP_SECRET"],
    "settings.SANDBOX_GRAPH_URL=http://simulator": ["SANDBOX_APP_SECRET", "SANDBOX_CONTROL_TOKEN"],
    "simulator.enabled=true": ["SANDBOX_GRAPH_URL"],
    "serviceMonitor.enabled=true,secret.keys={SECRET_KEY,ENCRYPTION_KEYS,DATABASE_URL,REDIS_URL,META_APP_SECRET,"
    "META_WEBHOOK_VERIFY_TOKEN}": ["METRICS_TOKEN"],
    "settings.BILLING_ENABLED=true": ["RAZORPAY_KEY_ID", "RAZORPAY_KEY_SECRET", "RAZORPAY_WEBHOOK_SECRETS"],
}
"""Values with which no process would start, and the text that the error of the chart must contain."""


def main() -> int:
    """Run every check. Returns 1 when one fails."""
    tools = Path(sys.argv[1]).resolve()
    helm, kubeconform = str(tools / "bin/helm"), str(tools / "bin/kubeconform")
    subprocess.run([helm, "lint", "--strict", CHART], check=True)
    for version in KUBERNETES:
        for name, options in VARIANTS.items():
            command = [helm, "template", "gateway", str(CHART), "--kube-version", version, *options]
            rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            apart = "gateway-notifications" if name == NOTIFICATIONS_APART else "gateway-web"
            for path, service in (("/v1/messages", "gateway-web"), ("/upstream/webhook", apart)):
                if (found := _led_to(path, rendered)) != {service}:
                    raise SystemExit(f"{name}: {path} leads to {found}, not to {service}.")
            _check_hook(rendered)
            if name == NUMBERS:
                _check_numbers(rendered)
            if name == SANDBOX:
                _check_simulator(rendered)
            with tempfile.TemporaryDirectory() as directory:
                _write_schemas(Path(directory), tools, version, rendered)
                sys.stdout.write(f"Kubernetes {version}, {name}: ")
                sys.stdout.flush()
                location = directory + "/{{.ResourceKind}}{{.KindSuffix}}.json"
                checks = [
                    kubeconform,
                    "-strict",
                    "-summary",
                    "-skip",
                    OTHERS_KINDS,
                    "-schema-location",
                    location,
                ]
                subprocess.run([*checks, "-"], input=rendered, text=True, check=True)
    for value, named in REFUSED.items():
        command = [helm, "template", "gateway", str(CHART), "--kube-version", KUBERNETES[-1], "--set", value]
        refused = subprocess.run(command, check=False, capture_output=True, text=True)
        if refused.returncode == 0 or not all(name in refused.stderr for name in named):
            raise SystemExit(f"With {value} the chart says: {refused.stderr or 'nothing'}")
    monitoring = ROOT / "deploy/monitoring"
    subprocess.run(["promtool", "check", "rules", monitoring / "alerts.yml"], check=True)
    subprocess.run(["promtool", "test", "rules", monitoring / "alerts_test.yml"], check=True)
    return 0


def backend(path: str, routes: Iterable[Sequence[str]]) -> str:
    """The service to which the routes of an Ingress (path, type, service) send a path. An exact route comes before a
    prefix, and a longer prefix before a shorter one.
    """
    found = [
        (kind == "Exact", len(prefix), service)
        for prefix, kind, service in routes
        if path == prefix or (kind == "Prefix" and path.startswith(prefix.rstrip("/") + "/"))
    ]
    return max(found)[2]


def _check_hook(rendered: str) -> None:
    """Check that the migration job contains its settings, because the release creates all other objects later."""
    [job] = [thing for thing in yaml.safe_load_all(rendered) if thing["kind"] == "Job"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    given = {each["name"] for each in container["env"]}
    if "envFrom" in container or not {"BASE_URL", "ENVIRONMENT", "TRUSTED_PROXY_COUNT"} <= given:
        raise SystemExit("The migration's job does not carry its settings.")


def _check_numbers(rendered: str) -> None:
    """Check that settings have the digits of the numbers in the values."""
    [settings] = [thing["data"] for thing in yaml.safe_load_all(rendered) if thing["kind"] == "ConfigMap"]
    if {name: settings[name] for name in AS_NUMBERS} != AS_NUMBERS:
        raise SystemExit(f"Numbers became {settings}.")


def _check_simulator(rendered: str) -> None:
    """Check that the simulator gets the secrets of the sandbox and no others."""
    [simulator] = [
        thing
        for thing in yaml.safe_load_all(rendered)
        if thing["kind"] == "StatefulSet" and thing["metadata"]["name"].endswith("-simulator")
    ]
    pod = simulator["spec"]["template"]["spec"]
    [secrets] = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    if {item["key"] for item in secrets["items"]} != {"SANDBOX_APP_SECRET", "SANDBOX_CONTROL_TOKEN"}:
        raise SystemExit(f"The simulator gets {secrets}.")


def _led_to(path: str, rendered: str) -> set[str]:
    """The services to which the rendered Ingress or HTTPRoute sends a path, for all hosts."""
    things = list(yaml.safe_load_all(rendered))
    [ingress] = [thing for thing in things if thing["kind"] in {"Ingress", "HTTPRoute"}]
    if ingress["kind"] == "HTTPRoute":
        routes = [
            (
                match["path"]["value"],
                match["path"]["type"].removeprefix("Path"),
                rule["backendRefs"][0]["name"],
            )
            for rule in ingress["spec"]["rules"]
            for match in rule["matches"]
        ]
        return {backend(path, routes)}
    return {
        backend(
            path,
            [
                (each["path"], each["pathType"], each["backend"]["service"]["name"])
                for each in rule["http"]["paths"]
            ],
        )
        for rule in ingress["spec"]["rules"]
    }


def _write_schemas(directory: Path, tools: Path, version: str, rendered: str) -> None:
    """Write the schemas of the rendered kinds. Each file contains all definitions."""
    place = tools / f"schemas/kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
    definitions = json.loads((place / "_definitions.json").read_text())["$defs"]
    for thing in yaml.safe_load_all(rendered):
        group, _, api = str(thing["apiVersion"]).rpartition("/")
        suffix = f"-{group.split('.')[0]}-{api}" if group else f"-{api}"
        name = f"{thing['kind'].lower()}{suffix}.json"
        if (place / name).exists():
            schema = json.loads((place / name).read_text())
            whole = {**schema, "$defs": definitions}
            whole.pop("$id", None)
            (directory / name).write_text(json.dumps(_local(whole)))


def _local(value: Any) -> Any:
    """The schema with references only to its own file."""
    if isinstance(value, dict):
        return {
            key: each.rpartition("_definitions.json")[2]
            if key == "$ref" and isinstance(each, str)
            else _local(each)
            for key, each in value.items()
        }
    return [_local(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
