"""Callback overrides of the Graph API. The callback of an account or number is stored as an endpoint with Meta's
format.

The endpoint's `uid` contains the id of the account or number, so concurrent requests create only one endpoint.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rest_framework import serializers

from gateway.api.errors import Conflict, InvalidRequest, NotFound
from tenants.audit import Actor
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint
from webhooks.requests.verify_ping import WebhookVerifyFailed
from webhooks.serializers import UrlField


class OverrideIn(serializers.Serializer[dict[str, Any]]):
    """A callback in the form of the Graph API."""

    override_callback_uri = UrlField()
    verify_token = serializers.CharField(max_length=255)


def callback_urls(nodes: Iterable[str], *, tenant_id: UUID, environment: str) -> dict[str, str]:
    """The URLs of existing callbacks, by account or number."""
    names = {_uid(node): node for node in nodes}
    endpoints = Endpoint.objects.for_environment(tenant_id, environment).filter(uid__in=list(names))
    return {names[uid]: url for uid, url in endpoints.values_list("uid", "url") if uid is not None}


def _uid(node: str) -> str:
    return f"cloud-api:{node}"


@dataclass(frozen=True, slots=True)
class Callback:
    """The callback for the events of one account or number. `actor` is recorded as the author of changes."""

    tenant_id: UUID
    environment: str
    node: str
    is_number: bool
    actor: Actor

    @property
    def uid(self) -> str:
        """The `uid` of the callback's endpoint."""
        return _uid(self.node)

    def endpoint(self) -> Endpoint | None:
        """The callback's endpoint. None while there is no callback."""
        return Endpoint.objects.for_environment(self.tenant_id, self.environment).filter(uid=self.uid).first()

    def set(self, *, url: str, verify_token: str) -> dict[str, Any]:
        """Set the URL that gets the events, after a handshake. Returns the Graph API's answer.

        Only this answer has the secret of a new endpoint. When the handshake fails, raises WebhookVerifyFailed and
        changes nothing.
        """
        endpoint = self.endpoint()
        created = None
        if endpoint is None:
            try:
                endpoint = created = lifecycle.create(
                    tenant_id=self.tenant_id,
                    environment=self.environment,
                    actor=self.actor,
                    status=Endpoint.Status.PENDING,
                    url=url,
                    verify_token=verify_token,
                    format=Endpoint.Format.META,
                    uid=self.uid,
                    event_types=["*"],
                    waba_ids=None if self.is_number else [self.node],
                    phone_number_ids=[self.node] if self.is_number else None,
                )
            except (Conflict, InvalidRequest):
                # Raises the error unless a concurrent call has just created the endpoint.
                endpoint = self.endpoint()
                if endpoint is None:
                    raise
        if endpoint.format != Endpoint.Format.META:
            raise InvalidRequest.of(uid=f"Another endpoint has the uid {self.uid}.")
        changes = {"url": url, "verify_token": verify_token, "status": Endpoint.Status.ACTIVE}
        try:
            try:
                self._change(endpoint, changes)
            except Conflict:
                # A concurrent call verified the endpoint first.
                self._change(endpoint, changes)
        except NotFound:
            if created is not None:
                raise
            # The concurrent call that created the endpoint deleted it, because its own handshake failed.
            return self.set(url=url, verify_token=verify_token)
        except WebhookVerifyFailed:
            if created is not None:
                # A concurrent call may have verified the endpoint, or deleted it.
                with suppress(NotFound):
                    self._delete(created, only_pending=True)
            raise
        if created is None:
            return {"success": True}
        return {"success": True, "webhook": {"id": str(created.id), "secret": created.secret}}

    def remove(self) -> bool:
        """Delete the callback's endpoint. False when there is none."""
        endpoint = self.endpoint()
        if endpoint is not None:
            self._delete(endpoint)
        return endpoint is not None

    def _change(self, endpoint: Endpoint, changes: dict[str, Any]) -> None:
        lifecycle.change(
            tenant_id=self.tenant_id,
            environment=self.environment,
            endpoint_id=endpoint.id,
            changes=dict(changes),
            actor=self.actor,
        )

    def _delete(self, endpoint: Endpoint, *, only_pending: bool = False) -> None:
        lifecycle.delete(
            tenant_id=self.tenant_id,
            environment=self.environment,
            endpoint_id=endpoint.id,
            actor=self.actor,
            only_pending=only_pending,
        )
