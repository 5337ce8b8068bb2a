"""The synchronous twin of a module, from its asynchronous source: words are replaced, nothing else."""

import re

_WORDS = {
    "async def": "def",
    "async for": "for",
    "async with": "with",
    "await ": "",
    "asyncio.sleep": "time.sleep",
    "import asyncio\n": "import time\n",
    "__aiter__": "__iter__",
    "aiter_sse": "iter_sse",
    "aread": "read",
    "Awaitable[None]": "None",
}
_CLASSES = re.compile(r"\bAsync(?=[A-Z])")


def synchronous(source: str) -> str:
    """The module without asyncio."""
    for word, plain in _WORDS.items():
        source = source.replace(word, plain)
    return _CLASSES.sub("", source)
