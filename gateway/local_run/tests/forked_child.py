"""What a forked process says of itself: run by `test_forked.py` as `python -m`."""

import atexit
import json
import os
import sys
import time
from pathlib import Path

from gateway import ids

sys.stdout.write(
    json.dumps(
        {
            "arguments": sys.argv[1:],
            "name": Path("/proc/self/comm").read_text().strip(),
            "group": os.getpgrp(),
            # Listing them opens one, which is gone afterwards.
            "files": sorted(
                int(file.name) for file in list(Path("/proc/self/fd").iterdir()) if file.exists()
            ),
            "input": sys.stdin.read(),
            "extra": os.environ.get("EXTRA"),
            "random": ids.uuid7().hex[-12:],
            "has_django": "django.contrib.admin" in sys.modules,
        }
    )
    + "\n"
)
atexit.register(sys.stdout.write, "the end\n")
match sys.argv[1]:
    case "exit":
        raise SystemExit(7)
    case "crash":
        raise RuntimeError("crashed in the child")
    case "wait":
        time.sleep(60)
