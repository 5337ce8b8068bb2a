"""Clients that the usual generators make from the contract, in Go, Java, PHP and C#, against the running service.

`make clients` runs the tests. They need Go, Java, Maven, PHP with Guzzle, and Mono with Newtonsoft.Json. No other test
needs these programs, so `make test` leaves these tests out.
"""

import json
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Stack, until
from tests.e2e.sdks.homes import run

pytestmark = pytest.mark.e2e

SAMPLES = Path(__file__).with_name("generated")
CONTRACT = ROOT / "docs/openapi.json"
GENERATOR = "org.openapitools:openapi-generator-cli:7.17.0"
OAPI_CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
OAPI_OPTIONS = """package: gateway
output: gateway/client.go
generate: {models: true, client: true}
output-options: {skip-prune: true}
"""
"""The options from docs/sdks.md. Without `skip-prune`, the generator leaves the bodies of events out."""
GO_OPTIONS = "--additional-properties=packageName=gateway,withGoMod=false,useOneOfDiscriminatorLookup=true"
"""The options from docs/sdks.md. Without the discriminator look-up, an event matches several types, which is an error.
"""
CSHARP_OPTIONS = (
    "--additional-properties=packageName=Gateway,targetFramework=net48,useOneOfDiscriminatorLookup=true"
)
NAMING_STRATEGY = re.compile(r"(new DefaultContractResolver)\s*\{\s*NamingStrategy = [^{}]*\{[^{}]*\}\s*\}")
"""Matches a naming strategy, which is removed: Debian's Newtonsoft.Json has none, and the client specifies each name.
"""
MONO_LIBRARIES = (
    "System.ComponentModel.DataAnnotations,System.Net.Http,System.Runtime.Serialization,System.Web"
)
CUSTOMER = "917000900058"
COMPILING = 600.0
"""The time limit in seconds of a generator or compiler."""


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of OpenAPI Generator."""
    home = tmp_path_factory.mktemp("generator")
    run(["mvn", "--quiet", "dependency:copy", f"-Dartifact={GENERATOR}", f"-DoutputDirectory={home}"], home)
    [jar] = home.glob("*.jar")
    return ["java", "-jar", str(jar), "generate", "-i", str(CONTRACT)]


@pytest.fixture(scope="module")
def event(stack: Stack) -> dict[str, Any]:
    """The event of a text that a customer wrote."""
    written = {"from": CUSTOMER, "type": "text", "text": {"body": "Where is my parcel?"}}
    number = stack.ready["phone_number_id"]
    wamid = stack.simulator("POST", "/sim/inbound", {"phone_number_id": number, **written})["id"]
    path = f"/v1/events?type=message.inbound&wamid={wamid}"
    [summary] = until(lambda: stack.api("GET", path).json()["data"], "the event")
    found: dict[str, Any] = stack.api("GET", f"/v1/events/{summary['id']}").json()["event"]
    return found


Build = Callable[[Path, list[str]], list[str]]
"""Generates and compiles the client into the sample's folder. Returns the command that runs the sample."""


def java(home: Path, generator: list[str]) -> list[str]:
    client = home / "client"
    run([*generator, "-g", "java", "--library=native", "-o", str(client)], home, seconds=COMPILING)
    listed = f"-Dmdep.outputFile={home / 'classpath.txt'}"
    run(["mvn", "--quiet", "compile", "dependency:build-classpath", listed], client, seconds=COMPILING)
    classpath = f"{home}:{client / 'target/classes'}:{(home / 'classpath.txt').read_text()}"
    run(["javac", "-cp", classpath, "Sample.java"], home)
    return ["java", "-cp", classpath, "Sample"]


def php(home: Path, generator: list[str]) -> list[str]:
    run([*generator, "-g", "php", "-o", str(home / "client")], home, seconds=COMPILING)
    for path in (home / "client/lib").rglob("*.php"):
        run(["php", "--syntax-check", str(path)], home)
    return ["php", "-d", "error_reporting=-1", "-d", "display_errors=stderr", "sample.php"]


def go(home: Path, generator: list[str]) -> list[str]:
    run([*generator, "-g", "go", "-o", str(home / "gateway"), GO_OPTIONS], home, seconds=COMPILING)
    shutil.rmtree(home / "gateway/test")
    return go_build(home)


def csharp(home: Path, generator: list[str]) -> list[str]:
    client = home / "client"
    options = ["--library=httpclient", CSHARP_OPTIONS]
    run([*generator, "-g", "csharp", "-o", str(client), *options], home, seconds=COMPILING)
    for path in (client / "src/Gateway").rglob("*.cs"):
        path.write_text(NAMING_STRATEGY.sub(r"\1()", path.read_text()))
    sources = ["Sample.cs", "Packages.cs", "-recurse:client/src/Gateway/*.cs"]
    libraries = [f"-r:{MONO_LIBRARIES}", "-pkg:newtonsoft-json"]
    run(["mcs", "-langversion:latest", "-out:sample.exe", *libraries, *sources], home, seconds=COMPILING)
    return ["mono", "sample.exe"]


def oapi(home: Path, generator: list[str]) -> list[str]:
    (home / "gateway").mkdir()
    (home / "gateway.yaml").write_text(OAPI_OPTIONS)
    run(["go", "run", OAPI_CODEGEN, "-config", "gateway.yaml", str(CONTRACT)], home, seconds=COMPILING)
    return go_build(home)


def go_build(home: Path) -> list[str]:
    run(["go", "mod", "init", "example.com/sample"], home)
    run(["go", "mod", "tidy"], home, seconds=COMPILING)
    run(["go", "build", "-o", "sample", "."], home, seconds=COMPILING)
    return ["./sample"]


@pytest.mark.parametrize("build", [java, php, csharp, go, oapi])
def test_the_client_sends_lists_and_reads_an_event(
    build: Build, generator: list[str], event: dict[str, Any], stack: Stack, tmp_path: Path
) -> None:
    home = Path(shutil.copytree(SAMPLES / build.__name__, tmp_path / "sample"))
    said = run(
        build(home, generator),
        home,
        BASE_URL=stack.ready["base_url"],
        API_KEY=stack.ready["api_key"],
        FROM=stack.ready["phone_number_id"],
        CUSTOMER=CUSTOMER,
        KEY=str(uuid.uuid4()),
        EVENT=json.dumps(event),
    )
    seen = json.loads(said)
    assert seen["wamid"].startswith("wamid.")
    assert seen["repeated"] == seen["wamid"]
    assert seen["refused"] == 400
    assert len(set(seen["events"])) == 2
    assert seen["received"] == event["data"]["message"]["text"]["body"]
