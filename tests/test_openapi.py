"""The committed OpenAPI document is what the service serves, and it covers the specification."""

import json
import re
from pathlib import Path
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from gateway.api.json import dumps

ROOT = Path(__file__).resolve().parents[1]

SPECIFICATION = """
GET /v1/health | GET /v1/tenant | PATCH /v1/tenant | GET /v1/tenants | POST /v1/tenants | GET /v1/tenants/{}
GET /v1/api-keys | POST /v1/api-keys | DELETE /v1/api-keys/{} | POST /v1/api-keys/{}/rotate
GET /v1/numbers | GET /v1/numbers/{} | POST /v1/numbers/embedded-signup | POST /v1/numbers/connect
POST /v1/numbers/migrate | POST /v1/numbers/{}/register | POST /v1/numbers/{}/deregister
POST /v1/numbers/{}/request-code | POST /v1/numbers/{}/verify-code | POST /v1/numbers/{}/two-step
POST /v1/numbers/{}/subscribe | GET /v1/numbers/{}/business-profile | POST /v1/numbers/{}/business-profile
POST /v1/connect-sessions | GET /v1/connect-sessions/{}
POST /v1/messages | POST /v1/messages/read | POST /v1/messages/batch | GET /v1/messages/batch/{}
GET /v1/messages/batch/{}/items | POST /v1/messages/batch/{}/cancel
POST /v1/media | GET /v1/media/{} | DELETE /v1/media/{}
GET /v1/templates | POST /v1/templates | GET /v1/templates/{} | POST /v1/templates/{} | DELETE /v1/templates/{}
POST /v1/templates/sync | GET /v1/templates/library | POST /v1/templates/media-handle
GET /v1/webhooks | POST /v1/webhooks | GET /v1/webhooks/{} | PATCH /v1/webhooks/{} | DELETE /v1/webhooks/{}
POST /v1/webhooks/{}/verify | POST /v1/webhooks/{}/rotate-secret | POST /v1/webhooks/{}/replay
GET /v1/webhook-deliveries | GET /v1/webhook-deliveries/{} | POST /v1/webhook-deliveries/{}/replay
GET /v1/events | GET /v1/events/{}
GET /v1/billing | POST /v1/billing/mandate | GET /v1/billing/invoices | GET /v1/billing/invoices/{}
POST /v1/billing/invoices/{}/pay
GET /v1/admin/tenants | POST /v1/admin/tenants/{}/approve | POST /v1/admin/tenants/{}/reject
POST /v1/admin/tenants/{}/suspend | POST /v1/admin/tenants/{}/reinstate | GET /v1/admin/numbers
GET /v1/admin/health | GET /v1/admin/audit | GET /v1/admin/billing | GET /v1/admin/mail/last
GET /v1/admin/apps | POST /v1/admin/apps | POST /v1/admin/apps/{}/keys
"""


def generated() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(dumps(SchemaGenerator().get_schema(public=True)))
    return document


def test_the_committed_document_is_the_generated_one() -> None:
    committed = json.loads((ROOT / "docs/openapi.json").read_text())
    assert committed == generated(), "run `make openapi`"


def test_the_document_is_valid_and_describes_every_operation_of_the_specification() -> None:
    document = generated()
    validate_schema(document)
    described = {
        f"{method.upper()} " + "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
        for path, operations in document["paths"].items()
        for method in operations
    }
    specified = {entry.strip() for line in SPECIFICATION.strip().splitlines() for entry in line.split("|")}
    assert specified - described == set()


def test_every_operation_has_a_summary_of_its_own_and_its_errors() -> None:
    ids, summaries = [], []
    for operations in generated()["paths"].values():
        for operation in operations.values():
            ids.append(operation["operationId"])
            summaries.append(operation["summary"])
            assert operation["tags"]
            assert operation["description"].rstrip().endswith("."), operation["operationId"]
            assert not re.search(r"section \d|\.py\b|gateway/", operation["description"])
            assert "500" in operation["responses"]
            assert any(status.startswith("2") for status in operation["responses"])
    assert len(ids) == len(set(ids))
    assert len(summaries) == len(set(summaries))
