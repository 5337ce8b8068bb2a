"""Makes a test fail in which our code sets or locks something until the end of a transaction, but has begun none.

In production such a statement is a transaction of its own, so the setting or lock ends with it. The transaction of a
test would hide that.
"""

import re
import sys
from typing import Any

from django.db.backends.utils import CursorWrapper

from tests.watched import caller, found, is_excepted

_IS_LOCAL = re.compile(r"\bSET LOCAL\b|\bset_config\([^)]*, true\)|\bpg_advisory_xact_lock\b")


def _watch(cursor: Any) -> None:
    execute = cursor.execute

    def watched(self: Any, statement: Any, *args: Any, **options: Any) -> Any:
        if isinstance(statement, str) and _IS_LOCAL.search(statement) and not _has_begun(self.db):
            function = caller(sys._getframe(1))
            if function and not is_excepted(function, ()):
                found.append(f"{function} begins no transaction for: {statement}")
        return execute(self, statement, *args, **options)

    cursor.execute = watched


def _has_begun(connection: Any) -> bool:
    """Whether our code has begun a transaction, besides the one of the test."""
    return any(not block._from_testcase for block in connection.atomic_blocks)


_watch(CursorWrapper)
