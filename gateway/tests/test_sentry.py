"""Error reports: nothing personal and no credential leaves the service."""

import json

from gateway.monitoring.logs import scrub


def test_a_report_keeps_the_stack_and_loses_the_rest() -> None:
    key = "wb_live_" + "x" * 40
    report = scrub(
        {
            "request": {
                "method": "POST",
                "url": "https://api.example/invitation/secret-of-the-link?to=919812345678",
                "headers": {"Authorization": f"Bearer {key}"},
                "data": {"text": {"body": "private"}},
                "cookies": {"sessionid": "s"},
                "query_string": "to=919812345678",
            },
            "transaction": "/invitation/secret-of-the-link",
            "transaction_info": {"source": "url"},
            "user": {"email": "a@b.example"},
            "extra": {"body": "private"},
            "exception": {
                "values": [
                    {"type": "ValueError", "value": f"bad key {key}", "stacktrace": {"frames": []}},
                    {
                        "type": "IntegrityError",
                        "module": "django.db.utils",
                        "value": "Key (wa_id)=(919812345678)",
                    },
                    {
                        "type": "UniqueViolation",
                        "module": "psycopg.errors",
                        "value": "Key (wa_id)=(919812345678)",
                    },
                ]
            },
        },
        {},
    )
    text = json.dumps(report)
    for secret in (key, "private", "919812345678", "a@b.example", "sessionid", "secret-of-the-link"):
        assert secret not in text
    assert report["request"] == {"method": "POST"}
    assert report["exception"]["values"][0]["type"] == "ValueError"


def test_a_report_names_the_route() -> None:
    named = {"transaction": "/invitation/{token}", "transaction_info": {"source": "route"}}
    assert scrub(dict(named), {}) == named
