"""Business accounts and phone numbers of the Graph API (upstream facts 1.5 to 1.7): one method for each call.

Each returns Meta's answer unchanged. `number_columns` converts a number's fields to columns of the service's own table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from gateway.upstream import blocking_client
from gateway.upstream.blocking_client import request
from gateway.upstream.calls import GraphAnswer, platform
from gateway.upstream.notifications.lossless_json import member, objects

NUMBER_FIELDS = (
    "id",
    "display_phone_number",
    "verified_name",
    "quality_rating",
    "quality_score",
    "messaging_limit_tier",
    "whatsapp_business_manager_messaging_limit",
    "throughput",
    "name_status",
    "new_name_status",
    "code_verification_status",
    "platform_type",
    "status",
    "account_mode",
    "is_official_business_account",
    "is_pin_enabled",
    "is_on_biz_app",
    "last_onboarded_time",
    "webhook_configuration",
    "health_status",
)
ACCOUNT_FIELDS = ("id", "name", "account_review_status", "health_status", "status")
PROFILE_FIELDS = (
    "about",
    "address",
    "description",
    "email",
    "profile_picture_url",
    "websites",
    "vertical",
)

_REGISTERED = frozenset({"CONNECTED", "FLAGGED", "RESTRICTED", "RATE_LIMITED"})
"""Statuses of registered numbers. The last three mean limits, which Meta itself enforces for each message."""
_NOT_REGISTERED = frozenset({"DISCONNECTED", "UNVERIFIED", "BANNED", "DELETED", "MIGRATED"})


@dataclass(frozen=True, slots=True)
class Graph:
    """The Graph API's accounts and numbers, with one account's token."""

    environment: str
    token: str = field(repr=False)

    def number(self, phone_number_id: str) -> GraphAnswer:
        """`GET /{PNID}` with every field."""
        return self._read(phone_number_id, NUMBER_FIELDS)

    def account(self, waba_id: str) -> GraphAnswer:
        """`GET /{WABA}`."""
        return self._read(waba_id, ACCOUNT_FIELDS)

    def number_pages(self, waba_id: str) -> Iterator[GraphAnswer]:
        """`GET /{WABA}/phone_numbers`, page by page. Ends after the last page or the first error."""
        return blocking_client.pages(
            environment=self.environment,
            token=self.token,
            path=f"{waba_id}/phone_numbers",
            fields=NUMBER_FIELDS,
        )

    def subscribe(self, waba_id: str) -> GraphAnswer:
        """`POST /{WABA}/subscribed_apps`: the service's app receives the account's notifications."""
        return self._call("POST", f"{waba_id}/subscribed_apps")

    def unsubscribe(self, waba_id: str) -> GraphAnswer:
        """`DELETE /{WABA}/subscribed_apps`: the app receives no more notifications of the account."""
        return self._call("DELETE", f"{waba_id}/subscribed_apps")

    def subscriptions(self, waba_id: str) -> GraphAnswer:
        """`GET /{WABA}/subscribed_apps`. Read the answer with `subscribed_to_us`."""
        return self._call("GET", f"{waba_id}/subscribed_apps")

    def subscribed_to_us(self, answer: GraphAnswer) -> bool:
        """Whether an answer of `subscriptions` lists the service's app."""
        apps = [member(row, "whatsapp_business_api_data") for _, row in objects(answer.json(), "data")]
        return any(str(app.get("id")) == platform(self.environment).app_id for app in apps)

    def register(self, phone_number_id: str, *, pin: str | None, body: bytes | None = None) -> GraphAnswer:
        """`POST /{PNID}/register`, with the caller's own bytes if given. Not for coexistence numbers."""
        own = {"messaging_product": "whatsapp", "pin": pin}
        return self._call("POST", f"{phone_number_id}/register", body or orjson.dumps(own))

    def deregister(self, phone_number_id: str, *, body: bytes | None = None) -> GraphAnswer:
        """`POST /{PNID}/deregister`, with the caller's own bytes if given. Not for coexistence numbers."""
        own = {"messaging_product": "whatsapp"}
        return self._call("POST", f"{phone_number_id}/deregister", body or orjson.dumps(own))

    def set_pin(self, phone_number_id: str, *, pin: str, body: bytes | None = None) -> GraphAnswer:
        """`POST /{PNID}`: the two-step PIN, with the caller's own bytes if given."""
        return self._call("POST", phone_number_id, body or orjson.dumps({"pin": pin}))

    def request_app_data(self, phone_number_id: str, *, sync_type: str) -> GraphAnswer:
        """`POST /{PNID}/smb_app_data`: request contacts or chats of a number in the app (upstream fact 1.10)."""
        body = {"messaging_product": "whatsapp", "sync_type": sync_type}
        return self._call("POST", f"{phone_number_id}/smb_app_data", orjson.dumps(body))

    def request_code(self, phone_number_id: str, *, code_method: str, language: str) -> GraphAnswer:
        """`POST /{PNID}/request_code`: a verification code by SMS or voice."""
        body = {"code_method": code_method, "language": language}
        return self._call("POST", f"{phone_number_id}/request_code", orjson.dumps(body))

    def verify_code(self, phone_number_id: str, *, code: str) -> GraphAnswer:
        """`POST /{PNID}/verify_code`."""
        return self._call("POST", f"{phone_number_id}/verify_code", orjson.dumps({"code": code}))

    def add(self, waba_id: str, *, cc: str, phone_number: str, body: bytes | None = None) -> GraphAnswer:
        """`POST /{WABA}/phone_numbers` with the caller's own bytes, or else for a number at another provider. The
        answer's `id` is the number's new id.
        """
        moved = {"cc": cc, "phone_number": phone_number, "migrate_phone_number": True}
        return self._call("POST", f"{waba_id}/phone_numbers", body or orjson.dumps(moved))

    def business_profile(self, phone_number_id: str) -> GraphAnswer:
        """`GET /{PNID}/whatsapp_business_profile` with every field."""
        return self._call(
            "GET",
            f"{phone_number_id}/whatsapp_business_profile",
            params={"fields": ",".join(PROFILE_FIELDS)},
        )

    def set_business_profile(self, phone_number_id: str, body: bytes) -> GraphAnswer:
        """`POST /{PNID}/whatsapp_business_profile` with the caller's own bytes."""
        return self._call("POST", f"{phone_number_id}/whatsapp_business_profile", body)

    def set_encryption_key(self, phone_number_id: str, public_key: str) -> GraphAnswer:
        """`POST /{PNID}/whatsapp_business_encryption`: the key (PEM) that encrypts data requests of Flows."""
        body = orjson.dumps({"business_public_key": public_key})
        return self._call("POST", f"{phone_number_id}/whatsapp_business_encryption", body)

    def _call(
        self, method: str, path: str, body: bytes | None = None, params: Mapping[str, str] | None = None
    ) -> GraphAnswer:
        return request(
            environment=self.environment,
            method=method,
            path=path,
            token=self.token,
            params=params,
            body=body,
        )

    def _read(self, path: str, fields: tuple[str, ...]) -> GraphAnswer:
        return blocking_client.read(environment=self.environment, token=self.token, path=path, fields=fields)


def digits_of(text: str) -> str:
    """The digits of a phone number in any notation."""
    return "".join(character for character in text if character in "0123456789")


def registered(view: Mapping[str, Any]) -> bool | None:
    """Whether a number is registered with the Cloud API. None when the view does not show it (upstream fact 1.5)."""
    platform_type, status = view.get("platform_type"), view.get("status")
    if platform_type not in {None, "CLOUD_API"} or status in _NOT_REGISTERED:
        return False
    return True if platform_type == "CLOUD_API" and status in _REGISTERED else None


def number_columns(view: Mapping[str, Any]) -> dict[str, Any]:
    """Meta's view of a number as columns of `PhoneNumber`. Leaves out fields that the view lacks.

    The messaging limit is the number's old field or the portfolio's new field (upstream fact 0.18).
    """
    throughput = view.get("throughput")
    display = view.get("display_phone_number")
    columns = {
        "verified_name": view.get("verified_name"),
        "quality_rating": view.get("quality_rating"),
        "messaging_limit_tier": view.get("messaging_limit_tier")
        or view.get("whatsapp_business_manager_messaging_limit"),
        "throughput_level": throughput.get("level") if isinstance(throughput, Mapping) else None,
        "name_status": view.get("name_status"),
        "display_phone_number": display,
        "digits": digits_of(display) if isinstance(display, str) else None,
    }
    known = {name: value for name, value in columns.items() if isinstance(value, str)}
    if isinstance(view.get("is_on_biz_app"), bool):
        return {**known, "coexistence": view["is_on_biz_app"]}
    return known


def onboarded_at(view: Mapping[str, Any]) -> datetime | None:
    """When Meta last registered the number, if known."""
    text = view.get("last_onboarded_time")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z") if isinstance(text, str) else None
    except ValueError:
        return None
