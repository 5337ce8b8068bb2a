"""Filters by content: the time of one evaluation in Postgres, on small and large bodies, with and without a match.

The floor reads the same bodies without a filter.
"""

from typing import Any

import orjson

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result

EVALUATIONS = 100_000
MOST_US = 10.0
FILTERS: dict[str, dict[str, Any]] = {
    "one comparison": {"data.message.type": "button"},
    "five comparisons": {
        "$or": [
            {"data.message.type": {"$in": ["button", "interactive"]}},
            {"data.message.from": {"$startsWith": "44"}, "data.message.text": {"$exists": True}},
            {"type": "message.status"},
        ]
    },
}
_LOAD = """
CREATE TEMPORARY TABLE bodies AS SELECT n, %s::bytea AS body FROM generate_series(1, %s) AS n
"""
_RUN = """
SELECT extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1e6, passed
FROM (SELECT count(*) AS passed FROM bodies WHERE {condition}) AS counted
"""
_BARE = "octet_length(body) > n * 0"
_FILTERED = "event_passes(body, CASE WHEN n > 0 THEN 'message.inbound' END, %(path)s::jsonpath)"


def run(harness: Harness) -> list[Result]:
    """Measure each filter on a text message, then on a message of 16 KiB."""
    from webhooks.events import filters

    harness.web()
    results = []
    for size in ("text message", "16 KiB"):
        with cursor() as database:
            database.execute("DROP TABLE IF EXISTS bodies")
            database.execute(_LOAD, [_body(16_000 if size == "16 KiB" else 60), EVALUATIONS])
            bare = _microseconds(database, _BARE, {})
            for name, given in FILTERS.items():
                own = _microseconds(database, _FILTERED, {"path": filters.compiled(given)}) - bare
                result = Result(
                    f"{name}, {size}", EVALUATIONS, 1e6 / own, cpu={"postgres": own}, floor=1e6 / bare
                )
                if size == "text message":
                    result.target = f"≤ {MOST_US:.0f} µs"
                    result.expect(own <= MOST_US, f"{own:.1f} µs, not {MOST_US:.0f}")
                results.append(result)
    return results


def _body(characters: int) -> bytes:
    message = {
        "id": "wamid.HBgMOTE5ODEyMzQ1Njc4FQIAEhgUM0E5",
        "from": "919812345678",
        "timestamp": "1793517701",
        "type": "text",
        "text": {"body": "x" * characters},
    }
    contacts = [{"profile": {"name": "Asha R"}, "wa_id": "919812345678"}]
    return orjson.dumps({"messaging_product": "whatsapp", "contacts": contacts, "message": message})


def _microseconds(database: Any, condition: str, values: dict[str, Any]) -> float:
    """The microseconds of one evaluation, from the best of three runs."""
    times = []
    for _ in range(3):
        database.execute(_RUN.format(condition=condition), values)
        times.append(float(database.fetchone()[0]) / EVALUATIONS)
    return min(times)
