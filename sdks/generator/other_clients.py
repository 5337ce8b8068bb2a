"""Compiles Go, Java and PHP clients that the usual generators make of the contract (`make clients`).

Needs Go, Java, Maven and PHP, which nothing else here needs; so it is no part of `make test`.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = "org.openapitools:openapi-generator-cli:7.17.0"
CONTRACT = ROOT / "docs/openapi.json"
CLIENTS = {
    "go": (["--additional-properties=packageName=whabuzz,withGoMod=true"], ["go", "build", "./..."]),
    "java": (["--library=native"], ["mvn", "--quiet", "compile"]),
    "php": ([], ["sh", "-c", "find lib -name '*.php' -print0 | xargs -0 -n1 php --syntax-check"]),
}
"""Language: options of OpenAPI Generator, and what compiles the client; PHP checks the syntax alone."""
OAPI_CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
OAPI_OPTIONS = """package: whabuzz
output: client.go
generate: {models: true, client: true}
output-options: {skip-prune: true}
"""
"""Without pruning the bodies of webhooks are there too."""


def main() -> int:
    """Generate and compile each client. Returns an exit code."""
    if missing := [program for program in ("java", "mvn", "go", "php") if shutil.which(program) is None]:
        return say(f"Missing: {', '.join(missing)}.")
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        run(
            ["mvn", "--quiet", "dependency:copy", f"-Dartifact={GENERATOR}", f"-DoutputDirectory={home}"],
            home,
        )
        [jar] = home.glob("*.jar")
        for language, (options, compiler) in CLIENTS.items():
            client = home / language
            command = [
                "java",
                "-jar",
                str(jar),
                "generate",
                "-i",
                str(CONTRACT),
                "-g",
                language,
            ]
            run([*command, "-o", str(client), *options], home)
            if language == "go":
                run(["go", "mod", "tidy"], client)
            run(compiler, client)
            say(f"The {language} client compiles.", code=0)
        _oapi_codegen(home / "oapi-codegen")
        say("The client of oapi-codegen compiles.", code=0)
    return 0


def _oapi_codegen(client: Path) -> None:
    client.mkdir()
    (client / "options.yaml").write_text(OAPI_OPTIONS)
    run(["go", "mod", "init", "example.com/whabuzz"], client)
    run(["go", "run", OAPI_CODEGEN, "-config", "options.yaml", str(CONTRACT)], client)
    run(["go", "mod", "tidy"], client)
    run(["go", "build", "./..."], client)


def run(command: list[str], directory: Path) -> None:
    """Run a program; ends this one with what it says when it fails."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def say(text: str, *, code: int = 1) -> int:
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
