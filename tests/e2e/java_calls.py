"""The calls of Meta's Java SDK, unmodified, to the running service (`make clients`, which needs Java and Maven).

The SDK supports only https, so it uses the TLS proxy of the other libraries, with a name from a hosts file.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.test_cloud_api_libraries import BOTS, PICTURE, account, graph, image

__all__ = ["account", "graph"]

pytestmark = pytest.mark.e2e

CALLS = 20
FAILING: dict[str, str] = {}
"""The calls that fail, and the reasons."""


def test_every_call_of_the_java_sdk_works(
    stack: Stack, graph: dict[str, str], account: str, tmp_path: Path
) -> None:
    classpath, picture = tmp_path / "classpath.txt", tmp_path / "picture.jpg"
    maven = ["mvn", "--quiet", "--file", str(BOTS / "java/pom.xml"), f"-DbuildDirectory={tmp_path}"]
    made = [*maven, "compile", "dependency:build-classpath", f"-Dmdep.outputFile={classpath}"]
    subprocess.run(made, check=True)
    picture.write_bytes(PICTURE)
    (tmp_path / "hosts").write_text("127.0.0.1 gateway.example\n")
    received = image(stack, "917000304321")
    output = subprocess.run(
        [
            "java",
            f"-Djdk.net.hosts.file={tmp_path / 'hosts'}",
            f"-Djavax.net.ssl.trustStore={trusted(Path(graph['NODE_EXTRA_CA_CERTS']), tmp_path)}",
            "-Djavax.net.ssl.trustStorePassword=changeit",
            *("-cp", f"{tmp_path / 'classes'}:{classpath.read_text()}", "Calls"),
        ],
        env={
            "PATH": os.environ["PATH"],
            "GATEWAY": f"https://gateway.example:{graph['REDIRECTED_PORT']}",
            "KEY": stack.ready["api_key"],
            "PHONE": stack.ready["phone_number_id"],
            "ACCOUNT": account,
            "CUSTOMER": "917000304321",
            "RECEIVED": received["id"],
            "MEDIA": received["body"]["image"]["id"],
            "PICTURE": str(picture),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    rows = [json.loads(line) for line in output.splitlines() if line.startswith('{"call"')]
    assert len(rows) == CALLS
    failed = {row["call"]: row["error"] for row in rows if row["error"]}
    assert set(failed) == set(FAILING), failed


def trusted(certificate: Path, folder: Path) -> Path:
    """A trust store for Java with one certificate."""
    pem, store = folder / "certificate.pem", folder / "trusted.jks"
    text = certificate.read_text()
    pem.write_text(text[text.index("-----BEGIN CERTIFICATE") :])
    command = ["keytool", "-importcert", "-noprompt", "-alias", "gateway", "-storepass", "changeit"]
    subprocess.run([*command, "-file", str(pem), "-keystore", str(store)], check=True, capture_output=True)
    return store
