"""Settings are all in `.env.example`, the documented production values are accepted, and bad values are rejected."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway import checks, environment
from tests.operating import composed
from tests.pages import marked_block, production_settings

ROOT = Path(__file__).resolve().parents[1]
READ = re.compile(r'env\.\w+\(\s*"([A-Z_]+)"')
DOCUMENTED = re.compile(r"^# ([A-Z_]+)=", re.MULTILINE)


def test_every_setting_is_documented_and_nothing_else() -> None:
    read = set(READ.findall((ROOT / "gateway/settings.py").read_text()))
    documented = set(DOCUMENTED.findall((ROOT / ".env.example").read_text()))
    assert read - documented == set(), "read but not in .env.example"
    assert documented - read == set(), "in .env.example but not read"


def values_under(**variables: str) -> dict[str, str]:
    """Run the settings module with this environment. Returns every setting."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(environment.Env, "ENVIRON", environment.FilesOrVariables(env=variables))
        found = runpy.run_path(str(ROOT / "gateway/settings.py"))
    return {name: repr(value) for name, value in found.items() if name.isupper() and not callable(value)}


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


def test_the_level_of_the_log_may_be_in_small_letters() -> None:
    assert values_under(LOG_LEVEL="warning")["LOG_LEVEL"] == "'WARNING'"


def test_one_setting_fits_the_service_to_a_pooler_in_transaction_mode() -> None:
    for prepared in ("true", "false"):
        found = values_under(DATABASE_PREPARED_STATEMENTS=prepared)
        disabled = "True" if prepared == "false" else "False"
        assert f"'DISABLE_SERVER_SIDE_CURSORS': {disabled}" in found["DATABASES"]


def test_a_secret_file_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        values_under(SECRET_KEY_FILE=str(tmp_path / "absent"))


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
    "PRODUCTION": True,
    "META_GRAPH_URL": "https://graph.facebook.com",
    "WEBHOOK_ALLOW_PRIVATE_NETWORKS": False,
    "WEBHOOK_ALLOW_HTTP": False,
    "EMAIL_MODE": "smtp",
    "SUPPORT_EMAIL": "support@example.com",
    "BASE_URL": "https://api.example.com",
    "APP_URL": "https://app.example.com",
    "BILLING_SELLER_NAME": "Asha Messaging",
    "BILLING_SELLER_ADDRESS": "2 Asha Road, Bengaluru 560001",
}


def findings(settings: Any, **changes: Any) -> list[str]:
    for name, value in {**GOOD, **changes}.items():
        setattr(settings, name, value)
    return [str(problem.id) for problem in [*checks.check_values(), *checks.check_production()]]


def test_good_settings_have_no_findings(settings: Any) -> None:
    assert findings(settings) == []


def test_the_example_seller_may_stay_if_both_texts_are_the_operators(settings: Any, tmp_path: Path) -> None:
    assert (
        checks.EXAMPLE_SELLER.items()
        <= {
            name: ast.literal_eval(value)
            for name, value in values_under().items()
            if name in checks.EXAMPLE_SELLER
        }.items()
    )
    examples = {"TEXTS_DIR": str(tmp_path), **checks.EXAMPLE_SELLER}
    for name, found in (("terms", ["gateway.E023"]), ("privacy", [])):
        (tmp_path / f"{name}.md").write_text("Ours.")
        assert findings(settings, **examples) == found


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ENCRYPTION_KEYS": ["short"]}, "gateway.E001"),
        ({"ENCRYPTION_KEYS": []}, "gateway.E001"),
        ({"EMAIL_MODE": "pigeon"}, "gateway.E002"),
        ({"WEBHOOK_RETRY_SCHEDULE": [5.0, 0.0]}, "gateway.E003"),
        ({"WEBHOOK_RETRY_SCHEDULE": []}, "gateway.E003"),
        ({"WEBHOOK_PROXY_URL": "https://proxy:3128"}, "gateway.E005"),
        ({"WEBHOOK_PROXY_URL": "http://proxy"}, "gateway.E005"),
        ({"WEBHOOK_PROXY_URL": "http://proxy:port"}, "gateway.E005"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "gateway.E006"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://"}, "gateway.E006"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://collector:4318"}, "gateway.E006"),
        ({"TEXTS_DIR": "/absent"}, "gateway.E007"),
        ({"PRODUCTION": False}, "gateway.E010"),
        ({"WEBHOOK_ALLOW_PRIVATE_NETWORKS": True}, "gateway.E016"),
        ({"WEBHOOK_ALLOW_HTTP": True}, "gateway.E017"),
        ({"EMAIL_MODE": "log"}, "gateway.E018"),
        ({"BASE_URL": "http://api.example.com"}, "gateway.E019"),
        ({"APP_URL": "http://app.example.com"}, "gateway.E019"),
        ({"META_GRAPH_URL": "http://graph.example.com"}, "gateway.E020"),
        ({"SUPPORT_EMAIL": "support@localhost"}, "gateway.E022"),
        *(({name: example}, "gateway.E023") for name, example in checks.EXAMPLE_SELLER.items()),
        *(
            ({"SUPPORT_EMAIL": f"{name}@gateway.example"}, "gateway.E022")
            for name in ("", "no-reply", "NoReply", "no_reply", "do-not-reply", "donotreply")
        ),
    ],
)
def test_a_bad_setting_is_refused_by_its_number(settings: Any, change: dict[str, Any], code: str) -> None:
    assert code in findings(settings, **change)


SECRETS = {secret.name for secret in environment._SECRETS}
SANDBOX = {"SANDBOX_APP_SECRET", "SANDBOX_CONTROL_TOKEN"}
BILLING = {"RAZORPAY_KEY_ID", "RAZORPAY_KEY_SECRET", "RAZORPAY_WEBHOOK_SECRETS"}
FORMER = {"SECRET_KEY_FALLBACKS", "META_APP_SECRET_FALLBACKS"}
ALWAYS = SECRETS - SANDBOX - BILLING - FORMER | {"TRUSTED_PROXY_COUNT"}


def refused(**variables: str) -> set[str]:
    """Check an environment as a production process does at its start. Returns the settings that the error names."""

    class Variables(environment.Env):  # type: ignore[misc]
        ENVIRON = environment.FilesOrVariables(env=variables)

    try:
        environment.require_production_values(Variables())
    except ImproperlyConfigured as error:
        shown = [name for name in SECRETS if variables.get(name) and variables[name] in str(error)]
        assert not shown, "the error shows a secret"
        return {line.split()[0] for line in str(error).splitlines()[1:]}
    return set()


def processes() -> dict[str, list[str]]:
    """Return the different commands of the service's processes in the compose file, and two commands of `manage.py`."""
    found = composed.services({"POSTGRES_PASSWORD": "pw", "VALKEY_PASSWORD": "vpw"})
    by_command = {
        tuple(composed.words_of(service.get("command", composed.image_command()))): name
        for name, service in found.items()
        if service.get("image") == "messaging-gateway" and name != "simulator"
    }
    return {name: list(command) for command, name in by_command.items()} | {
        "a command": ["python", "manage.py", "shell", "-c", "print()"],
        "a command of ours": ["python", "manage.py", "console_token", "a@b.example"],
    }


@pytest.mark.parametrize("name", processes())
def test_no_process_of_production_starts_without_its_secrets(name: str) -> None:
    run = subprocess.run(
        processes()[name],
        cwd=ROOT,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": "/",
            "ENVIRONMENT": composed.image_environment()["ENVIRONMENT"],
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode != 0
    assert {missing for missing in SECRETS | ALWAYS if f"\n  {missing} is not set" in run.stderr} == ALWAYS


def test_the_environment_is_one_of_two_words() -> None:
    with pytest.raises(ImproperlyConfigured, match="ENVIRONMENT must be development or production"):
        values_under(ENVIRONMENT="prod")


def test_the_documented_production_settings_are_enough() -> None:
    assert refused(**production_settings()) == set()


@pytest.mark.parametrize("name", sorted(ALWAYS | SANDBOX))
def test_each_missing_or_empty_value_is_named_alone(name: str) -> None:
    given = production_settings()
    assert refused(**{**given, name: ""}) == {name}
    del given[name]
    assert refused(**given) == {name}


@pytest.mark.parametrize("count", ["-1", "one", "1.5"])
def test_proxies_are_counted_in_whole_numbers(count: str) -> None:
    assert refused(**production_settings() | {"TRUSTED_PROXY_COUNT": count}) == {"TRUSTED_PROXY_COUNT"}
    assert refused(**production_settings() | {"TRUSTED_PROXY_COUNT": "0"}) == set()


def published() -> dict[str, str]:
    """Return for each secret a value that is published in the repository: its default or a documented example."""
    example = dict(re.findall(r"^# ([A-Z_]+)=(.+)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    shown = marked_block("docs/operations.md", "production settings").strip().splitlines()
    documented = dict(line.split("=", 1) for line in shown)
    defaults = {
        "SECRET_KEY": environment.DEVELOPMENT_SECRET_KEY,
        "ENCRYPTION_KEYS": environment.DEVELOPMENT_ENCRYPTION_KEY,
    }
    former = {
        "SECRET_KEY_FALLBACKS": defaults["SECRET_KEY"],
        "META_APP_SECRET_FALLBACKS": example["META_APP_SECRET"],
    }
    known = {**documented, **example, **defaults, **former}
    return {name: known[name] for name in SECRETS - {"DATABASE_URL", "REDIS_URL"}}


@pytest.mark.parametrize("name", sorted(SECRETS - {"DATABASE_URL", "REDIS_URL"}))
def test_each_published_value_is_refused_also_beside_others(name: str) -> None:
    """A published value is rejected even while the feature that uses it is off, because anybody could sign with it."""
    given = production_settings() | {"SANDBOX_GRAPH_URL": ""}
    assert refused(**{**given, name: published()[name]}) == {name}
    assert refused(**{**given, name: f"one-of-our-own, {published()[name]}"}) == {name}


def test_what_is_off_needs_no_secrets() -> None:
    given = production_settings() | {"SANDBOX_GRAPH_URL": ""}
    for name in SANDBOX:
        del given[name]
    assert refused(**given) == set()
    assert refused(**given, BILLING_ENABLED="true") == BILLING


def test_without_a_sandbox_nothing_signed_with_its_published_secret_counts() -> None:
    given = {name: value for name, value in production_settings().items() if not name.startswith("SANDBOX_")}
    found = values_under(**given)
    assert (found["SANDBOX_GRAPH_URL"], found["SANDBOX_APP_SECRET"]) == ("''", "''")
    assert found["RAZORPAY_WEBHOOK_SECRETS"] == "[]"


def test_the_image_collects_its_static_files_with_secrets_of_that_step() -> None:
    documented = marked_block("docs/operations.md", "static files of an image")
    [step] = [line.removeprefix("RUN ") for line in composed.dockerfile_lines() if "collectstatic" in line]
    words = {word for word in step.split() if word != "&&"} - {"--verbosity"}
    assert words - set(documented.split()) <= {"0"}, "the documented step differs from the step of the image"
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        ["sh", "-c", f"{step} --dry-run"],
        cwd=ROOT,
        env={"PATH": python, "HOME": "/", "ENVIRONMENT": composed.image_environment()["ENVIRONMENT"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
