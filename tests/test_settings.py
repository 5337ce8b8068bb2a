"""Settings: each is listed in `.env.example`, the documented production values pass, each bad one is refused."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from gateway import checks

ROOT = Path(__file__).resolve().parents[1]
READ = re.compile(r'env\.\w+\(\s*"([A-Z_]+)"')
DOCUMENTED = re.compile(r"^# ([A-Z_]+)=", re.MULTILINE)


def test_every_setting_is_documented_and_nothing_else() -> None:
    read = set(READ.findall((ROOT / "gateway/settings.py").read_text()))
    documented = set(DOCUMENTED.findall((ROOT / ".env.example").read_text()))
    assert read - documented == set(), "read but not in .env.example"
    assert documented - read == set(), "in .env.example but not read"


def values_under(**environment: str) -> dict[str, str]:
    """Every setting as a process with this environment reads it."""
    code = (
        "from gateway import settings as s;"
        "print({n: repr(v) for n, v in vars(s).items() if n.isupper() and not callable(v)})"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    values: dict[str, str] = ast.literal_eval(run.stdout)
    return values


def test_the_documented_defaults_are_the_defaults() -> None:
    shown = dict(
        re.findall(r"^# ([A-Z_]+)=(.+)$", (ROOT / ".env.example").read_text(), re.MULTILINE),
    )
    assert len(shown) > 30
    for example in ("DATABASE_URL", "REDIS_URL"):
        del shown[example]
    assert values_under(**shown) == values_under()


def test_every_setting_can_come_from_a_file(tmp_path: Path) -> None:
    values = {
        "SECRET_KEY": "from-a-file",
        "ENCRYPTION_KEYS": "one,two",
        "EMAIL_URL": "smtp://u:hidden@mail:25",
    }
    files = {}
    for name, value in values.items():
        (tmp_path / name).write_text(f"{value}\n")
        files[f"{name}_FILE"] = str(tmp_path / name)
    found = values_under(**files, SECRET_KEY="of-the-environment")
    assert found["SECRET_KEY"] == "'from-a-file'"
    assert found["ENCRYPTION_KEYS"] == "['one', 'two']"
    assert found["EMAIL_HOST_PASSWORD"] == "'hidden'"


def test_one_setting_fits_the_service_to_a_pooler_in_transaction_mode() -> None:
    for prepared in ("true", "false"):
        found = values_under(DATABASE_PREPARED_STATEMENTS=prepared)
        disabled = "True" if prepared == "false" else "False"
        assert f"'DISABLE_SERVER_SIDE_CURSORS': {disabled}" in found["DATABASES"]


def test_a_secret_file_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        values_under(SECRET_KEY_FILE=str(tmp_path / "absent"))
    assert "absent" in failed.value.stderr


def production_settings() -> dict[str, str]:
    """The block of production settings in docs/operations.md."""
    text = (ROOT / "docs/operations.md").read_text()
    block = text.split("<!-- production settings -->")[1].split("```")[1].removeprefix("sh\n")
    return dict(line.split("=", 1) for line in block.strip().splitlines() if not line.startswith("#"))


def test_the_documented_production_settings_pass_the_deployment_check() -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    run = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={**kept, **production_settings()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr


GOOD = {
    "ENVIRONMENT": "production",
    "PRODUCTION": True,
    "SECRET_KEY": "x" * 60,
    "ENCRYPTION_KEYS": ["3mBqGn1Z0Zr4Zq0V5sT0c2nq9v8w7x6y5z4A3B2C1D0="],
    "META_APP_SECRET": "m" * 32,
    "META_WEBHOOK_VERIFY_TOKEN": "v" * 32,
    "META_GRAPH_URL": "https://graph.facebook.com",
    "SANDBOX_GRAPH_URL": "http://simulator:8100",
    "SANDBOX_APP_SECRET": "s" * 32,
    "SANDBOX_CONTROL_TOKEN": "t" * 32,
    "WEBHOOK_ALLOW_PRIVATE_NETWORKS": False,
    "WEBHOOK_ALLOW_HTTP": False,
    "EMAIL_MODE": "smtp",
    "SUPPORT_EMAIL": "support@example.com",
    "BASE_URL": "https://api.example.com",
    "APP_URL": "https://app.example.com",
}


def findings(settings: Any, **changes: Any) -> list[str]:
    for name, value in {**GOOD, **changes}.items():
        setattr(settings, name, value)
    return [str(problem.id) for problem in [*checks.check_values(), *checks.check_production()]]


def test_good_settings_have_no_findings(settings: Any) -> None:
    assert findings(settings) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ENCRYPTION_KEYS": ["short"]}, "gateway.E001"),
        ({"ENCRYPTION_KEYS": []}, "gateway.E001"),
        ({"EMAIL_MODE": "pigeon"}, "gateway.E002"),
        ({"WEBHOOK_RETRY_SCHEDULE": [5.0, 0.0]}, "gateway.E003"),
        ({"WEBHOOK_RETRY_SCHEDULE": []}, "gateway.E003"),
        ({"ENVIRONMENT": "prod"}, "gateway.E004"),
        ({"WEBHOOK_PROXY_URL": "https://proxy:3128"}, "gateway.E005"),
        ({"WEBHOOK_PROXY_URL": "http://proxy"}, "gateway.E005"),
        ({"WEBHOOK_PROXY_URL": "http://proxy:port"}, "gateway.E005"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "gateway.E006"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://"}, "gateway.E006"),
        ({"PRODUCTION": False}, "gateway.E010"),
        ({"SECRET_KEY": django_settings.DEVELOPMENT_SECRET_KEY}, "gateway.E011"),
        ({"ENCRYPTION_KEYS": [django_settings.DEVELOPMENT_ENCRYPTION_KEY]}, "gateway.E012"),
        ({"META_APP_SECRET": django_settings.SIMULATOR_APP_SECRET}, "gateway.E013"),
        ({"META_APP_SECRET_FALLBACKS": [django_settings.SIMULATOR_APP_SECRET]}, "gateway.E013"),
        ({"SANDBOX_CONTROL_TOKEN": ""}, "gateway.E023"),
        ({"SANDBOX_APP_SECRET": django_settings.SIMULATOR_APP_SECRET}, "gateway.E014"),
        ({"META_WEBHOOK_VERIFY_TOKEN": "sim-verify-token"}, "gateway.E015"),
        ({"WEBHOOK_ALLOW_PRIVATE_NETWORKS": True}, "gateway.E016"),
        ({"WEBHOOK_ALLOW_HTTP": True}, "gateway.E017"),
        ({"EMAIL_MODE": "log"}, "gateway.E018"),
        ({"BASE_URL": "http://api.example.com"}, "gateway.E019"),
        ({"META_GRAPH_URL": "http://graph.example.com"}, "gateway.E020"),
        ({"SUPPORT_EMAIL": "support@localhost"}, "gateway.E022"),
        ({"SUPPORT_EMAIL": "no-reply@gateway.example"}, "gateway.E022"),
    ],
)
def test_a_bad_setting_is_refused_by_its_number(settings: Any, change: dict[str, Any], code: str) -> None:
    assert code in findings(settings, **change)


def test_without_a_sandbox_its_secret_does_not_matter(settings: Any) -> None:
    published = django_settings.SIMULATOR_APP_SECRET
    assert findings(settings, SANDBOX_GRAPH_URL="", SANDBOX_APP_SECRET=published) == []
