"""System check of the directory for the send journal. If it is not writable, every send fails."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import Error, Tags, register


@register(Tags.files, deploy=True)
def data_dir_is_writable(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    """Check that this process can write or create `DATA_DIR`."""
    existing: Path = settings.DATA_DIR
    while not existing.exists():
        existing = existing.parent
    if os.access(existing, os.W_OK | os.X_OK):
        return []
    return [
        Error(
            f"DATA_DIR cannot be written: {settings.DATA_DIR}",
            hint="Each send is recorded there before the upstream call. Mount a volume that outlives the process.",
            id="messaging.E001",
        )
    ]
