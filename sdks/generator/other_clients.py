"""Compiles Go and Java clients that OpenAPI Generator makes of the contract (`make clients`).

Needs Go, Java and Maven, which nothing else here needs; so it is no part of `make test`.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = "org.openapitools:openapi-generator-cli:7.17.0"
CLIENTS = {
    "go": (["--additional-properties=packageName=whabuzz,withGoMod=true"], ["go", "build", "./..."]),
    "java": (["--library=native"], ["mvn", "--quiet", "compile"]),
}
"""Language: options of the generator, and what compiles the client."""


def main() -> int:
    """Generate and compile each client. Returns an exit code."""
    if missing := [program for program in ("java", "mvn", "go") if shutil.which(program) is None]:
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
                str(ROOT / "docs/openapi.json"),
                "-g",
                language,
            ]
            run([*command, "-o", str(client), *options], home)
            if language == "go":
                run(["go", "mod", "tidy"], client)
            run(compiler, client)
            say(f"The {language} client compiles.", code=0)
    return 0


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
