"""Every call in public Python libraries for the Cloud API, made once with the unmodified library.

`test_cloud_api_calls.py` runs it in the environment of `requirements.txt`, with the library's name as argument. Each
call is a line of JSON on standard output, with its name and the reason for a failure.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable
from typing import Any

import sending_libraries
import whole_libraries


def _problem(answer: Any) -> str | None:
    """The failure in a response. Some libraries return it instead of raising."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], int):
        answer = answer[1] if answer[0] >= 400 else None
    status = getattr(answer, "status_code", 200)
    if answer is False:
        return "it says that it failed"
    if isinstance(answer, dict) and answer.get("error"):
        return json.dumps(answer["error"])[:300]
    return f"HTTP {status}" if isinstance(status, int) and status >= 400 else None


async def _main() -> None:
    library = sys.argv[1].replace("-", "_")
    module = whole_libraries if hasattr(whole_libraries, library) else sending_libraries
    for name, make in getattr(module, library)():
        try:
            answer = make()
            if inspect.isawaitable(answer):
                answer = await _awaited(answer)
            error = _problem(answer)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"[:300]
        if not name.startswith("-"):
            sys.stdout.write(json.dumps({"call": name, "error": error}) + "\n")


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


asyncio.run(_main())
