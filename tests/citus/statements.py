"""Prints the SQL of all modules as JSON, by module and name: `python -m tests.citus.statements`.

A module builds its SQL when it is imported, so each value of `DATABASE_IS_DISTRIBUTED` needs a separate process.
"""

import importlib
import json
import sys

import django

from tests.citus.cluster import ROOT

PACKAGES = (
    "gateway/database",
    "gateway/request_log",
    "web",
    "phone_numbers",
    "webhooks",
    "messaging",
    "billing",
    "tenants",
    "console",
)
LEFT_OUT = {"tests", "migrations", "management"}


def statements() -> dict[str, str]:
    """Return the string constants of all modules, which include the SQL, by module and name."""
    names = (
        path.relative_to(ROOT).with_suffix("").parts
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )
    modules = (importlib.import_module(".".join(parts)) for parts in sorted(names) if not LEFT_OUT & {*parts})
    names_of: dict[str, str] = {}
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, str) and name.isupper():
                # A constant that several modules import counts once.
                names_of.setdefault(value, f"{module.__name__.removesuffix('.__init__')}.{name}")
    return {name: statement for statement, name in names_of.items()}


if __name__ == "__main__":
    django.setup()
    json.dump(statements(), sys.stdout)
