"""Every module in the image can be imported with the image's packages. `make containers` builds and runs the image."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions

from tests.pages import ROOT, page

SEEN_BY_THE_IMAGE = """
import importlib, importlib.abc, json, pkgutil, sys

missing, removed = (set(names) for names in json.load(sys.stdin))


class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in removed or name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
import django
django.setup()
import celery.apps.beat, celery.apps.worker
for module in pkgutil.walk_packages(["."]):
    if module.name not in removed and module.name.partition(".")[0] not in missing and ".tests" not in module.name:
        importlib.import_module(module.name)
"""


def test_every_module_of_the_image_imports_with_the_packages_of_the_image() -> None:
    left_out = re.findall(r"RUN rm -rf (.+?) && \\", page("Dockerfile"))[0].split()
    files = {path.removesuffix(".py").replace("/", ".") for path in left_out}
    shipped = {
        name.lower().replace("_", "-")
        for file in ("requirements.txt", "requirements-destinations.txt")
        for name in re.findall(r"^([\w.-]+)(?:\[.*?\])?==", page(file), re.MULTILINE)
    }
    missing = {
        module
        for module, names in packages_distributions().items()
        if not any(name.lower().replace("_", "-") in shipped for name in names)
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SEEN_BY_THE_IMAGE],
        input=json.dumps([sorted(missing | {"generator", "sdks"}), sorted(files)]),
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "gateway.settings", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
