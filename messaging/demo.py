"""The demo data of `make run`, created through the service's own API, as a tenant would create it. Safe to repeat.

The data is a staff user, an active sandbox tenant with its owner, a connected number, an API key, and a verified
webhook endpoint at the simulator's inbox. The number's account is the tenant's sandbox, so `/v1/test/*` creates no
second sandbox. `ready.json` holds the data that scripts need.
"""

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import requests
from django.conf import settings

from gateway.clock import now
from messaging.message_log.customers import WINDOW
from phone_numbers.models import sandbox_waba_id_of
from tenants.credentials import api_keys
from tenants.models import ApiKey, Tenant, User

STAFF_EMAIL = "staff@gateway.example"
OWNER_EMAIL = "owner@demo-shop.example"
TENANT_NAME = "Demo Shop"
PHONE_NUMBER_ID = "200300400500600"
DISPLAY_PHONE_NUMBER = "919800000001"
INBOX = "demo"
WA_ID = "919812345678"
"""The customer in the first request that `make run` prints."""
TIMEOUT_SECONDS, START_SECONDS = 30, 90
"""How long a call may take, and how long the service may take to start."""
STARTED_BEFORE_SECONDS = 3_600
"""A text to this customer must still be allowed this many seconds after the start of the service."""


class DemoError(Exception):
    """Raised when a step fails. The message names the step and the answer."""


def make(ready_path: Path) -> dict[str, str]:
    """Create the missing demo data, write `ready.json` (readable only by its owner) and return its content."""
    before = _read(ready_path)
    tenant = Tenant.objects.filter(created_via="demo").first() or Tenant.objects.create(
        name=TENANT_NAME,
        contact_email=OWNER_EMAIL,
        status=Tenant.Status.ACTIVE,
        sandbox=True,
        created_via="demo",
        approved_at=now(),
        billing_status=Tenant.BillingStatus.EXEMPT,
    )
    ready = {
        "base_url": settings.BASE_URL,
        "simulator_url": settings.SANDBOX_GRAPH_URL,
        "api_key": _api_key(tenant, before.get("api_key", "")),
        "tenant_id": str(tenant.id),
        "phone_number_id": PHONE_NUMBER_ID,
        "staff_email": STAFF_EMAIL,
        "staff_password": _password(
            before.get("staff_password", ""), STAFF_EMAIL, User.objects.create_superuser
        ),
        "owner_email": OWNER_EMAIL,
        "owner_password": _password(
            before.get("owner_password", ""), OWNER_EMAIL, User.objects.create_user, tenant=tenant
        ),
    }
    customer = _Customer(ready["api_key"])
    customer.wait_for_service()
    customer.connect_number(sandbox_waba_id_of(tenant.id))
    customer.verify_endpoint()
    customer.be_written_to()
    _write(ready_path, ready)
    return ready


class _Customer:
    """The demo tenant as a caller of the API, and as the owner of an account and an inbox at the simulator."""

    def __init__(self, api_key: str) -> None:
        self.session = requests.Session()
        self.session.trust_env = False
        self.api_key = api_key

    def wait_for_service(self) -> None:
        """Wait until the service answers. Raises DemoError if it does not answer in time."""
        deadline = monotonic() + START_SECONDS
        while monotonic() < deadline:
            with suppress(requests.ConnectionError):
                if self.session.get(f"{settings.BASE_URL}/v1/health", timeout=TIMEOUT_SECONDS).ok:
                    return
            sleep(0.05)
        raise DemoError(f"{settings.BASE_URL} did not answer within {START_SECONDS} seconds")

    def connect_number(self, waba_id: str) -> None:
        """Connect the number to the account `waba_id`. A number that is already connected stays at its account."""
        numbers = self._gateway("GET", "/v1/numbers")["data"]
        connected = next((row for row in numbers if row["phone_number_id"] == PHONE_NUMBER_ID), None)
        if connected:
            waba_id = connected["waba_id"]
        account = self._simulator(
            "POST",
            "/sim/accounts",
            {
                "waba_id": waba_id,
                "name": TENANT_NAME,
                "numbers": [
                    {
                        "phone_number_id": PHONE_NUMBER_ID,
                        "display_phone_number": DISPLAY_PHONE_NUMBER,
                        "verified_name": TENANT_NAME,
                    }
                ],
            },
        )
        if not connected:
            self._gateway(
                "POST",
                "/v1/numbers/embedded-signup",
                {"code": account["code"], "waba_id": waba_id, "phone_number_id": PHONE_NUMBER_ID},
            )

    def verify_endpoint(self) -> None:
        """Create an endpoint at the simulator's inbox. The inbox gets the secret so that it can verify signatures."""
        url = f"{settings.SANDBOX_GRAPH_URL}/inbox/{INBOX}"
        inbox = f"/sim/inboxes/{INBOX}"
        endpoints = self._gateway("GET", "/v1/webhooks")["data"]
        found = next((endpoint for endpoint in endpoints if endpoint["url"] == url), None)
        if found is None:
            made = self._gateway("POST", "/v1/webhooks", {"url": url, "description": "The simulator's inbox"})
            self._simulator("PUT", inbox, {"secrets": [made["secret"]]})
        elif not self._simulator("GET", inbox).get("secrets"):
            rotated = self._gateway("POST", f"/v1/webhooks/{found['id']}/rotate-secret", {"overlap_hours": 0})
            self._simulator("PUT", inbox, {"secrets": [rotated["secret"]]})

    def be_written_to(self) -> None:
        """Ensure that the customer wrote within the last 24 hours, so that the printed request may send a text."""
        # Asks the simulator, because a simulator that restarted has lost messages that the gateway still has.
        known = self._simulator("GET", f"/sim/messages?customer={WA_ID}&limit=100")["data"]
        a_day_ago = now().timestamp() - WINDOW.total_seconds() + STARTED_BEFORE_SECONDS
        if not any(each["direction"] == "inbound" and each["timestamp"] > a_day_ago for each in known):
            written = {"phone_number_id": PHONE_NUMBER_ID, "from": WA_ID, "name": "Asha Rao", "text": "Hello"}
            self._simulator("POST", "/sim/inbound", written)

    def _gateway(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, settings.BASE_URL + path, body, {"Authorization": f"Bearer {self.api_key}"})

    def _simulator(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, settings.SANDBOX_GRAPH_URL + path, body, {})

    def _call(self, method: str, url: str, body: Any, headers: dict[str, str]) -> Any:
        answer = self.session.request(method, url, json=body, headers=headers, timeout=TIMEOUT_SECONDS)
        if not answer.ok:
            raise DemoError(f"{method} {url} answered {answer.status_code}: {answer.text[:500]}")
        return answer.json()


def _api_key(tenant: Tenant, before: str) -> str:
    known = ApiKey.objects.for_tenant(tenant.id).filter(key_hash=api_keys.hash_of(before), revoked_at=None)
    if known.exists():
        return before
    return api_keys.create(name="demo", environment=ApiKey.Environment.LIVE, tenant=tenant).key


def _password(before: str, email: str, create: Callable[..., User], **fields: Any) -> str:
    """Return the password of a demo user, who is created if missing. A previous password that works is kept."""
    user = User.objects.filter(email=email).first()
    if user is not None and before and user.check_password(before):
        return before
    password = secrets.token_urlsafe(15)
    if user is None:
        create(email, password, **fields)
    else:
        user.set_password(password)
        user.save(update_fields=["password"])
    return password


def _read(path: Path) -> dict[str, str]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(path: Path, ready: dict[str, str]) -> None:
    partial = path.with_suffix(".part")
    partial.touch(mode=0o600)
    partial.write_text(json.dumps(ready, indent=2) + "\n")
    partial.replace(path)
