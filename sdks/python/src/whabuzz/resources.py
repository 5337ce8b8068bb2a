"""Resources of the API, one method per operation. Generated from docs/openapi.json by `make sdks`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from whabuzz import types
from whabuzz.calls import Call, File
from whabuzz.transport import Download, Pages, Resource, Transport


class ApiKeys(Resource):
    """The API keys of your business."""

    def list(self, *, limit: int | None = None) -> Pages[types.ApiKey]:
        """List API keys.

        Returns the keys of the caller's environment. Each key is shown by its prefix, never in full.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/api-keys",
                query={"limit": limit},
            )
        )

    def create(
        self, body: types.ApiKeyRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.CreatedApiKey:
        """Create an API key.

        Only this answer shows the full key. A key cannot create a key with scopes or numbers that it lacks
        itself, or a key that expires after it does: the answer is 403.
        """
        answer: types.CreatedApiKey = self._json(
            Call(
                "POST",
                "/v1/api-keys",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def revoke(self, key_id: str) -> types.RevokedKey:
        """Revoke an API key.

        The key stops working at once, or within 10 seconds during an outage. A key may revoke itself, even
        without the scope `keys`.
        """
        answer: types.RevokedKey = self._json(
            Call(
                "DELETE",
                self._path("/v1/api-keys/{key_id}", key_id=key_id),
            )
        )
        return answer

    def rotate(self, key_id: str) -> types.RotatedKey:
        """Rotate an API key.

        Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours.
        """
        answer: types.RotatedKey = self._json(
            Call(
                "POST",
                self._path("/v1/api-keys/{key_id}/rotate", key_id=key_id),
            )
        )
        return answer


class Admin(Resource):
    """Operations for the service's staff. They need a console session token."""

    def list_api_keys(
        self,
        *,
        app_id: str | None = None,
        prefix: str | None = None,
        tenant_id: str | None = None,
        limit: int | None = None,
    ) -> Pages[types.AnyApiKey]:
        """Find API keys of all tenants and platforms.

        Returns the keys that pass the filters, newest first. Each key is shown by its prefix, never in
        full.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/admin/api-keys",
                query={"app_id": app_id, "prefix": prefix, "tenant_id": tenant_id, "limit": limit},
            )
        )

    def revoke_api_key(self, key_id: str) -> types.RevokedKey:
        """Revoke any API key.

        The key stops working at once, or within 10 seconds during an outage.
        """
        answer: types.RevokedKey = self._json(
            Call(
                "DELETE",
                self._path("/v1/admin/api-keys/{key_id}", key_id=key_id),
            )
        )
        return answer

    def list_apps(self, *, limit: int | None = None) -> Pages[types.AppWithTenants]:
        """List platform apps.

        Returns every platform app with the count of its tenants.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/admin/apps",
                query={"limit": limit},
            )
        )

    def create_app(self, body: types.AppRequest, *, extra_body: Mapping[str, Any] | None = None) -> types.App:
        """Create a platform app.

        A platform app acts for many tenants. It has no key yet: create one with a separate call.
        """
        answer: types.App = self._json(
            Call(
                "POST",
                "/v1/admin/apps",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def list_app_keys(self, app_id: str, *, limit: int | None = None) -> Pages[types.ApiKey]:
        """List a platform app's keys.

        Returns the app's keys, newest first. Each key is shown by its prefix, never in full.
        """
        return self._pages(
            Call(
                "GET",
                self._path("/v1/admin/apps/{app_id}/keys", app_id=app_id),
                query={"limit": limit},
            )
        )

    def create_app_key(
        self, app_id: str, body: types.AppKeyRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.AppKey:
        """Create a key of a platform app.

        Only this answer shows the full key.
        """
        answer: types.AppKey = self._json(
            Call(
                "POST",
                self._path("/v1/admin/apps/{app_id}/keys", app_id=app_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def revoke_app_key(self, app_id: str, key_id: str) -> types.RevokedKey:
        """Revoke a platform app's key.

        The key stops working at once, or within 10 seconds during an outage.
        """
        answer: types.RevokedKey = self._json(
            Call(
                "DELETE",
                self._path("/v1/admin/apps/{app_id}/keys/{key_id}", app_id=app_id, key_id=key_id),
            )
        )
        return answer

    def rotate_app_key(self, app_id: str, key_id: str) -> types.RotatedKey:
        """Rotate a platform app's key.

        Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours.
        """
        answer: types.RotatedKey = self._json(
            Call(
                "POST",
                self._path("/v1/admin/apps/{app_id}/keys/{key_id}/rotate", app_id=app_id, key_id=key_id),
            )
        )
        return answer

    def list_audit(
        self, *, action: str | None = None, tenant_id: str | None = None, limit: int | None = None
    ) -> Pages[types.AuditEntry]:
        """List audit entries.

        Returns the changes made by staff, members of teams and API keys, newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/admin/audit",
                query={"action": action, "tenant_id": tenant_id, "limit": limit},
            )
        )

    def billing(self) -> types.AdminBilling:
        """Show how every tenant pays.

        Returns the tenants by name, those with an overdue invoice first. Also works while billing is off.
        """
        answer: types.AdminBilling = self._json(
            Call(
                "GET",
                "/v1/admin/billing",
            )
        )
        return answer

    def health(self) -> types.HealthReport:
        """Show the state of the service.

        Counts due retries, dead deliveries and open circuits. Shows the state of tokens, partitions and the
        key mirror.
        """
        answer: types.HealthReport = self._json(
            Call(
                "GET",
                "/v1/admin/health",
            )
        )
        return answer

    def last_mail(self, *, email: str) -> types.LastMail:
        """Read the last mail to an address.

        Works only if the setting `EMAIL_MODE` is `log`. Otherwise the answer is 404.
        """
        answer: types.LastMail = self._json(
            Call(
                "GET",
                "/v1/admin/mail/last",
                query={"email": email},
            )
        )
        return answer

    def list_numbers(
        self, *, connection_state: Literal["pending", "connected", "disconnected"] | None = None
    ) -> Pages[types.AdminNumber]:
        """List the numbers of all tenants.

        Returns the numbers of all businesses, newest first, optionally only those of one connection state.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/admin/numbers",
                query={"connection_state": connection_state},
            )
        )

    def list_tenants(
        self,
        *,
        status: Literal["pending_approval", "active", "rejected", "suspended"] | None = None,
        limit: int | None = None,
    ) -> Pages[types.AdminTenant]:
        """List all tenants.

        Returns the tenants, newest first, with the data for their review. `status` selects one status.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/admin/tenants",
                query={"status": status, "limit": limit},
            )
        )

    def approve_tenant(self, tenant_id: str) -> types.Approved:
        """Approve a tenant.

        Lets the tenant use `/v1`, starts its trial, and emails the tenant.
        """
        answer: types.Approved = self._json(
            Call(
                "POST",
                self._path("/v1/admin/tenants/{tenant_id}/approve", tenant_id=tenant_id),
            )
        )
        return answer

    def reinstate_tenant(self, tenant_id: str) -> types.Reinstated:
        """Reinstate a suspended tenant.

        The tenant becomes `active`, and its waiting deliveries are sent.
        """
        answer: types.Reinstated = self._json(
            Call(
                "POST",
                self._path("/v1/admin/tenants/{tenant_id}/reinstate", tenant_id=tenant_id),
            )
        )
        return answer

    def reject_tenant(
        self, tenant_id: str, body: types.RejectRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Rejected:
        """Reject a tenant.

        The reason is stored and mailed to the applicant.
        """
        answer: types.Rejected = self._json(
            Call(
                "POST",
                self._path("/v1/admin/tenants/{tenant_id}/reject", tenant_id=tenant_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def suspend_tenant(
        self, tenant_id: str, body: types.SuspendRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Suspended:
        """Suspend a tenant.

        Sending stops. Events are still recorded, and their deliveries wait for the reinstatement.
        """
        answer: types.Suspended = self._json(
            Call(
                "POST",
                self._path("/v1/admin/tenants/{tenant_id}/suspend", tenant_id=tenant_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer


class Billing(Resource):
    """The plan, invoices and payments of your business."""

    def get(self) -> types.Billing:
        """Get plan, numbers and next charge.

        Returns the plan, the active numbers, the next charge, the billing profile and the mandate.
        """
        answer: types.Billing = self._json(
            Call(
                "GET",
                "/v1/billing",
            )
        )
        return answer

    def get_credit_note(self, credit_note_id: str) -> Download:
        """Get a credit note.

        Returns the credit note as a PDF. An invoice lists the ids of its credit notes in `credit_notes`.
        """
        return self._download(
            Call(
                "GET",
                self._path("/v1/billing/credit-notes/{credit_note_id}", credit_note_id=credit_note_id),
                accept="application/pdf",
            )
        )

    def list_invoices(self, *, limit: int | None = None) -> Pages[types.InvoiceSummary]:
        """List invoices.

        Returns the invoices of the business, newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/billing/invoices",
                query={"limit": limit},
            )
        )

    def get_invoice(self, invoice_id: str) -> types.Invoice:
        """Get an invoice.

        Returns a printable HTML page. Returns JSON or a PDF if `Accept` prefers that.
        """
        answer: types.Invoice = self._json(
            Call(
                "GET",
                self._path("/v1/billing/invoices/{invoice_id}", invoice_id=invoice_id),
            )
        )
        return answer

    def pay_invoice(
        self,
        invoice_id: str,
        body: types.ReturnUrlRequest | None = None,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.Payment:
        """Pay an invoice.

        Returns a link to the payment page of an open or failed invoice.
        """
        answer: types.Payment = self._json(
            Call(
                "POST",
                self._path("/v1/billing/invoices/{invoice_id}/pay", invoice_id=invoice_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def create_mandate(
        self, body: types.MandateRequest | None = None, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.CreatedMandate:
        """Set up autopay.

        Returns a link to the page on which you approve the mandate.
        """
        answer: types.CreatedMandate = self._json(
            Call(
                "POST",
                "/v1/billing/mandate",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def update_profile(
        self, body: types.ProfileRequest | None = None, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Profile:
        """Change the billing profile.

        The change applies to invoices that are issued from now on. Issued invoices never change.
        """
        answer: types.Profile = self._json(
            Call(
                "PATCH",
                "/v1/billing/profile",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer


class ConnectSessions(Resource):
    """Hosted pages on which your customer connects a WhatsApp Business account."""

    def create(
        self, body: types.ConnectSessionRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.CreatedConnectSession:
        """Create a connect session.

        Creates a link to a hosted page on which your customer connects a WhatsApp Business account. The
        link is valid for one hour.
        """
        answer: types.CreatedConnectSession = self._json(
            Call(
                "POST",
                "/v1/connect-sessions",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get(self, session_id: str) -> types.ConnectSession:
        """Get a connect session.

        Returns the status of the session, and the account and numbers that the customer connected.
        """
        answer: types.ConnectSession = self._json(
            Call(
                "GET",
                self._path("/v1/connect-sessions/{session_id}", session_id=session_id),
            )
        )
        return answer


class ConsoleSessions(Resource):
    """Log-ins of people, each with a console session token."""

    def create(
        self, body: types.ConsoleSessionRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.CreatedConsoleSession:
        """Log in.

        Accepts the email address, the password and, with a second factor, `otp`. The console token is valid
        for 12 hours.
        """
        answer: types.CreatedConsoleSession = self._json(
            Call(
                "POST",
                "/v1/console/sessions",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get(self) -> types.ConsoleSession:
        """Get the current console session.

        Returns the person to whom the console token of this request belongs.
        """
        answer: types.ConsoleSession = self._json(
            Call(
                "GET",
                "/v1/console/sessions/current",
            )
        )
        return answer

    def end(self) -> None:
        """Log out.

        Ends the session: the console token of this request stops working.
        """
        return self._nothing(
            Call(
                "DELETE",
                "/v1/console/sessions/current",
            )
        )


class CustomerData(Resource):
    """Erasing one customer's data, and exporting data to files."""

    def erase(self, customer_id: str) -> types.Erasure:
        """Erase a customer's data.

        Erases everything that is stored about one customer, in both environments. The path names the
        customer by wa_id or user_id. The erasure runs in the background and cannot be undone. `GET
        /v1/erasures/{erasure_id}` returns the receipt.
        """
        answer: types.Erasure = self._json(
            Call(
                "DELETE",
                self._path("/v1/customers/{customer_id}/data", customer_id=customer_id),
            )
        )
        return answer

    def list_erasures(self, *, limit: int | None = None) -> Pages[types.Erasure]:
        """List erasures.

        Returns the receipts of erasures, newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/erasures",
                query={"limit": limit},
            )
        )

    def get_erasure(self, erasure_id: str) -> types.Erasure:
        """Get the receipt of an erasure.

        Returns the receipt, which shows what was erased once the erasure is completed.
        """
        answer: types.Erasure = self._json(
            Call(
                "GET",
                self._path("/v1/erasures/{erasure_id}", erasure_id=erasure_id),
            )
        )
        return answer

    def create_export(
        self, body: types.ExportRequest | None = None, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Export:
        """Export data.

        Writes a file in the background, with one JSON object in each line. The file has one customer's
        data, or all data of the business in the key's environment.
        """
        answer: types.Export = self._json(
            Call(
                "POST",
                "/v1/exports",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get_export(self, export_id: str) -> types.Export:
        """Get the state of an export.

        Returns the export, whose status says whether the file can be downloaded.
        """
        answer: types.Export = self._json(
            Call(
                "GET",
                self._path("/v1/exports/{export_id}", export_id=export_id),
            )
        )
        return answer

    def download_export(self, export_id: str) -> Download:
        """Download an export.

        Returns the file. Each line is a JSON object such as `{"kind": …, "data": {…}}`. While the file is
        being written, the answer is 404.
        """
        return self._download(
            Call(
                "GET",
                self._path("/v1/exports/{export_id}/file", export_id=export_id),
                accept="application/x-ndjson",
            )
        )


class DeviceLogins(Resource):
    """How a program without a browser gets an API key. A person confirms the key in the console."""

    def create(
        self, body: types.DeviceLoginRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.DeviceLogin:
        """Start a device log-in.

        Show the person `user_code` and `verification_url_complete`, and redeem `device_code` every
        `interval_seconds`. Both codes are valid for ten minutes.
        """
        answer: types.DeviceLogin = self._json(
            Call(
                "POST",
                "/v1/device-logins",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def redeem(
        self, body: types.DeviceCodeRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.RedeemedDeviceLogin:
        """Redeem a device log-in.

        Returns the status. The first answer after the confirmation contains the API key. A code that is
        unknown, too old or already redeemed is `expired`.
        """
        answer: types.RedeemedDeviceLogin = self._json(
            Call(
                "POST",
                "/v1/device-logins/redeem",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer


class Events(Resource):
    """The log of everything that happened to your messages, numbers and templates."""

    def get_analytics(
        self,
        *,
        from_: str | datetime,
        to: str | datetime,
        direction: Literal["inbound", "outbound"] | None = None,
        group_by: str | None = None,
        interval: Literal["day", "hour"] | None = None,
        phone_number_id: str | None = None,
        template: str | None = None,
    ) -> types.Analytics:
        """Get analytics.

        Returns figures about messages and webhook deliveries by hour or day, in UTC. A status is counted in
        the hour in which its message was sent or received.
        """
        answer: types.Analytics = self._json(
            Call(
                "GET",
                "/v1/analytics",
                query={
                    "direction": direction,
                    "from": from_,
                    "group_by": group_by,
                    "interval": interval,
                    "phone_number_id": phone_number_id,
                    "template": template,
                    "to": to,
                },
            )
        )
        return answer

    def list(
        self,
        *,
        from_: str | datetime | None = None,
        limit: int | None = None,
        phone_number_id: str | None = None,
        to: str | datetime | None = None,
        type: str | None = None,
        user_id: str | None = None,
        wa_id: str | None = None,
        waba_id: str | None = None,
        wamid: str | None = None,
    ) -> Pages[types.EventSummary]:
        """Search the event log.

        Returns the events without their bodies, newest first, each with the counts of its deliveries. A
        request searches at most 10,000 events. When few match, a page can have fewer events than `limit`,
        or none. Continue until `next_cursor` is null.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/events",
                query={
                    "from": from_,
                    "limit": limit,
                    "phone_number_id": phone_number_id,
                    "to": to,
                    "type": type,
                    "user_id": user_id,
                    "wa_id": wa_id,
                    "waba_id": waba_id,
                    "wamid": wamid,
                },
            )
        )

    def get(self, event_id: str) -> types.EventWithDeliveries:
        """Get an event.

        Returns the event's envelope exactly as it is delivered, and all deliveries of the event.
        """
        answer: types.EventWithDeliveries = self._json(
            Call(
                "GET",
                self._path("/v1/events/{event_id}", event_id=event_id),
            )
        )
        return answer

    def stream(
        self, *, filter: str | None = None, phone_number_id: str | None = None, type: str | None = None
    ) -> Download:
        """Listen to events as they happen.

        Returns a stream of server-sent events. `data` is the event exactly as webhooks deliver it, and `id`
        is the place in the stream. To continue without gaps, send the last `id` as `Last-Event-ID`. Each
        key has one stream: a second stream ends the first. A comment is sent every 15 seconds. The stream
        may end at any time: reconnect after `retry` milliseconds.
        """
        return self._download(
            Call(
                "GET",
                "/v1/events/stream",
                query={"filter": filter, "phone_number_id": phone_number_id, "type": type},
                accept="text/event-stream",
            )
        )


class Flows(Resource):
    """The endpoint of a number that answers the data requests of WhatsApp Flows."""

    def get_endpoint(self, phone_number_id: str) -> types.FlowEndpoint:
        """Get a number's Flow endpoint.

        Returns your URL, the address to set in your Flows, and the result of the last data request.
        """
        answer: types.FlowEndpoint = self._json(
            Call(
                "GET",
                self._path("/v1/numbers/{phone_number_id}/flow-endpoint", phone_number_id=phone_number_id),
            )
        )
        return answer

    def set_endpoint(
        self,
        phone_number_id: str,
        body: types.FlowEndpointRequest,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.FlowEndpoint:
        """Set a number's Flow endpoint.

        Sets the URL to which data requests are forwarded. The first call also creates a key pair, uploads
        the public key to WhatsApp, and returns the signing secret. Later calls change only the URL.
        """
        answer: types.FlowEndpoint = self._json(
            Call(
                "PUT",
                self._path("/v1/numbers/{phone_number_id}/flow-endpoint", phone_number_id=phone_number_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def delete_endpoint(self, phone_number_id: str) -> types.DeletedFlowEndpoint:
        """Delete a number's Flow endpoint.

        Deletes the Flow endpoint and its keys. From then on, the number's Flows fail when they request
        data.
        """
        answer: types.DeletedFlowEndpoint = self._json(
            Call(
                "DELETE",
                self._path("/v1/numbers/{phone_number_id}/flow-endpoint", phone_number_id=phone_number_id),
            )
        )
        return answer

    def rotate_endpoint_key(self, phone_number_id: str) -> types.FlowEndpoint:
        """Rotate the key pair of a Flow endpoint.

        Creates a new key pair and uploads the public key to WhatsApp. This is also needed after the number
        was registered again, and when WhatsApp reports `public-key-missing`.
        """
        answer: types.FlowEndpoint = self._json(
            Call(
                "POST",
                self._path(
                    "/v1/numbers/{phone_number_id}/flow-endpoint/rotate-key", phone_number_id=phone_number_id
                ),
            )
        )
        return answer

    def rotate_endpoint_secret(self, phone_number_id: str) -> types.FlowEndpoint:
        """Rotate the signing secret of a Flow endpoint.

        Creates a new signing secret and returns it. For 24 hours, the old secret also signs requests.
        """
        answer: types.FlowEndpoint = self._json(
            Call(
                "POST",
                self._path(
                    "/v1/numbers/{phone_number_id}/flow-endpoint/rotate-secret",
                    phone_number_id=phone_number_id,
                ),
            )
        )
        return answer


class Health(Resource):
    """Health checks of the service. They need no credentials."""

    def health(self) -> types.Health:
        """Check that the service is up.

        Answers 200 while the database answers, and 503 otherwise. The operation needs no credentials.
        """
        answer: types.Health = self._json(
            Call(
                "GET",
                "/v1/health",
            )
        )
        return answer

    def live(self) -> types.Live:
        """Check that the process is alive.

        Answers 200 as long as the process can answer, whatever the state of the database. A supervisor can
        use it to decide whether to restart a process.
        """
        answer: types.Live = self._json(
            Call(
                "GET",
                "/v1/health/live",
            )
        )
        return answer

    def ready(self) -> types.Ready:
        """Check that the process is ready.

        Answers 200 when the database answers and has all migrations and partitions, and 503 otherwise.
        """
        answer: types.Ready = self._json(
            Call(
                "GET",
                "/v1/health/ready",
            )
        )
        return answer


class Ledger(Resource):
    """The events and messages of a day, counted by outcome."""

    def get(self, *, day: str | None = None, hour: int | None = None) -> types.Ledger:
        """Account for every event of a day.

        Counts the events and messages of a day in UTC by outcome. For each endpoint, `accepted` is the sum
        of `delivered`, `waiting`, `dead` and `expired`. The call counts the event log and the deliveries as
        they are now.
        """
        answer: types.Ledger = self._json(
            Call(
                "GET",
                "/v1/ledger",
                query={"day": day, "hour": hour},
            )
        )
        return answer


class Media(Resource):
    """Files that you send, and files that customers send."""

    def upload(self, *, file: File, from_: str, type: str | None = None) -> types.UploadedMedia:
        """Upload a media file.

        Uploads the file to WhatsApp and returns the media id, which a message can name.
        """
        answer: types.UploadedMedia = self._json(
            Call(
                "POST",
                "/v1/media",
                form={"type": type, "from": from_},
                file=file,
            )
        )
        return answer

    def get(self, media_id: str, *, from_: str | None = None, meta: bool | None = None) -> Download:
        """Download a media file.

        Returns the bytes of a file that a customer sent or that you uploaded. With `meta=true` it returns
        WhatsApp's description of the file as JSON.
        """
        return self._download(
            Call(
                "GET",
                self._path("/v1/media/{media_id}", media_id=media_id),
                query={"from": from_, "meta": meta},
                accept="application/octet-stream",
            )
        )

    def delete(self, media_id: str, *, from_: str | None = None) -> types.UpstreamSuccess:
        """Delete an uploaded media file.

        Deletes the file from WhatsApp's servers.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "DELETE",
                self._path("/v1/media/{media_id}", media_id=media_id),
                query={"from": from_},
            )
        )
        return answer


class Messages(Resource):
    """Single messages, scheduled messages and batches."""

    def list(
        self,
        *,
        batch_id: str | None = None,
        direction: Literal["inbound", "outbound"] | None = None,
        from_: str | datetime | None = None,
        limit: int | None = None,
        phone_number_id: str | None = None,
        referral_source_id: str | None = None,
        status: Literal["accepted", "delivered", "failed", "read", "received", "sent", "unknown"]
        | None = None,
        template: str | None = None,
        to: str | datetime | None = None,
        user_id: str | None = None,
        wa_id: str | None = None,
    ) -> Pages[types.Message]:
        """List messages.

        Returns the messages without their contents, newest first. Any page can hold fewer messages than
        `limit`, or none. Continue until `next_cursor` is null.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/messages",
                query={
                    "batch_id": batch_id,
                    "direction": direction,
                    "from": from_,
                    "limit": limit,
                    "phone_number_id": phone_number_id,
                    "referral_source_id": referral_source_id,
                    "status": status,
                    "template": template,
                    "to": to,
                    "user_id": user_id,
                    "wa_id": wa_id,
                },
            )
        )

    def send(
        self,
        body: types.OutgoingMessage,
        *,
        extra_body: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> types.SentMessage:
        """Send a message.

        Sends one message. The body is that of WhatsApp's own `/messages`, with `from` added. The answer is
        WhatsApp's own.
        """
        answer: types.SentMessage = self._json(
            Call(
                "POST",
                "/v1/messages",
                body=body,
                extra_body=extra_body,
                keyed=True,
                idempotency_key=idempotency_key,
            )
        )
        return answer

    def get(self, message_id: str) -> types.OneMessage:
        """Get a message.

        Returns the status of the message with times, errors as WhatsApp describes them, the events with
        their deliveries, and the content while it is stored. Percent-encode the wamid in the path, because
        it can contain `=`, `/` and `+`.
        """
        answer: types.OneMessage = self._json(
            Call(
                "GET",
                self._path("/v1/messages/{message_id}", message_id=message_id),
            )
        )
        return answer

    def list_batches(
        self,
        *,
        client_ref: str | None = None,
        limit: int | None = None,
        status: Literal["cancelled", "completed", "queued"] | None = None,
    ) -> Pages[types.Batch]:
        """List batches.

        Returns the batches, newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/messages/batch",
                query={"client_ref": client_ref, "limit": limit, "status": status},
            )
        )

    def create_batch(
        self, body: types.MessageBatch, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.CreatedBatch | types.RepeatedBatch:
        """Send a batch of messages.

        Sends up to 10,000 messages from one number, as fast as the number may send. Each message creates a
        `message.outbound` event.
        """
        answer: types.CreatedBatch | types.RepeatedBatch = self._json(
            Call(
                "POST",
                "/v1/messages/batch",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get_batch(self, batch_id: str) -> types.BatchDetails:
        """Get a batch.

        Returns the status and the counts of the batch, what the batch waits for, and the outcomes of its
        messages.
        """
        answer: types.BatchDetails = self._json(
            Call(
                "GET",
                self._path("/v1/messages/batch/{batch_id}", batch_id=batch_id),
            )
        )
        return answer

    def reschedule_batch(
        self,
        batch_id: str,
        body: types.BatchTimeRequest | None = None,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.Batch:
        """Change the time of a batch.

        Changes the time from which the batch is sent; `null` sends the batch now. The answer is 409 once
        the first message of the batch has been sent.
        """
        answer: types.Batch = self._json(
            Call(
                "PATCH",
                self._path("/v1/messages/batch/{batch_id}", batch_id=batch_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def cancel_batch(self, batch_id: str) -> types.Batch:
        """Cancel a batch.

        Stops the batch. Items that are already being sent are still sent. All other unsent items become
        `skipped`.
        """
        answer: types.Batch = self._json(
            Call(
                "POST",
                self._path("/v1/messages/batch/{batch_id}/cancel", batch_id=batch_id),
            )
        )
        return answer

    def list_batch_items(
        self,
        batch_id: str,
        *,
        limit: int | None = None,
        status: Literal["accepted", "failed", "pending", "skipped"] | None = None,
    ) -> Pages[types.BatchItem]:
        """List the items of a batch.

        Returns the items in the order in which they were submitted, each with WhatsApp's answer.
        """
        return self._pages(
            Call(
                "GET",
                self._path("/v1/messages/batch/{batch_id}/items", batch_id=batch_id),
                query={"limit": limit, "status": status},
            )
        )

    def retry_batch(self, batch_id: str) -> types.Batch:
        """Retry a batch.

        Queues again the failed items that were certainly not sent. These are items that WhatsApp throttled,
        and items for which WhatsApp rejected the token.
        """
        answer: types.Batch = self._json(
            Call(
                "POST",
                self._path("/v1/messages/batch/{batch_id}/retry", batch_id=batch_id),
            )
        )
        return answer

    def mark_read(
        self, body: types.ReadMark, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.UpstreamSuccess:
        """Mark a message as read.

        Marks a customer's message as read. With `typing_indicator`, the customer also sees that you are
        typing.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                "/v1/messages/read",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def list_scheduled(
        self,
        *,
        limit: int | None = None,
        status: Literal["accepted", "cancelled", "failed", "scheduled", "sending"] | None = None,
    ) -> Pages[types.Scheduled]:
        """List scheduled messages.

        Returns the scheduled messages, newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/messages/scheduled",
                query={"limit": limit, "status": status},
            )
        )

    def schedule(
        self,
        body: types.LaterMessage,
        *,
        extra_body: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> types.Scheduled:
        """Schedule a message.

        Sends one message later. The body is that of `POST /v1/messages`, with `send_at`, `customer_hours`,
        or both. The message is sent after `send_at`, and only in the given hours of the customer's day.
        """
        answer: types.Scheduled = self._json(
            Call(
                "POST",
                "/v1/messages/scheduled",
                body=body,
                extra_body=extra_body,
                keyed=True,
                idempotency_key=idempotency_key,
            )
        )
        return answer

    def get_scheduled(self, scheduled_id: str) -> types.Scheduled:
        """Get a scheduled message.

        Returns the state of the scheduled message, and the result once the message has been sent.
        """
        answer: types.Scheduled = self._json(
            Call(
                "GET",
                self._path("/v1/messages/scheduled/{scheduled_id}", scheduled_id=scheduled_id),
            )
        )
        return answer

    def reschedule(
        self,
        scheduled_id: str,
        body: types.SendAtRequest | None = None,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.Scheduled:
        """Change the time of a scheduled message.

        Changes the time while the message waits. Once the message is being sent, the answer is 409.
        """
        answer: types.Scheduled = self._json(
            Call(
                "PATCH",
                self._path("/v1/messages/scheduled/{scheduled_id}", scheduled_id=scheduled_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def cancel_scheduled(self, scheduled_id: str) -> types.Scheduled:
        """Cancel a scheduled message.

        Cancels the message while it waits. Once the message is being sent, the answer is 409.
        """
        answer: types.Scheduled = self._json(
            Call(
                "POST",
                self._path("/v1/messages/scheduled/{scheduled_id}/cancel", scheduled_id=scheduled_id),
            )
        )
        return answer

    def get_customer(self, customer_id: str, phone_number_id: str) -> types.Customer:
        """Get a customer of a number.

        Returns when the customer and you last wrote, the end of the 24-hour window, whether the customer
        stopped marketing messages, the last ad that the customer came from, and the known ids. The path
        names the customer by wa_id or user_id. For a customer without messages, the members about messages
        are null.
        """
        answer: types.Customer = self._json(
            Call(
                "GET",
                self._path(
                    "/v1/numbers/{phone_number_id}/customers/{customer_id}",
                    customer_id=customer_id,
                    phone_number_id=phone_number_id,
                ),
            )
        )
        return answer

    def list_opt_outs(
        self,
        *,
        limit: int | None = None,
        phone_number_id: str | None = None,
        source: Literal["stop_word", "whatsapp"] | None = None,
    ) -> Pages[types.OptedOutCustomer]:
        """List opt-outs.

        Returns the customers who want no marketing messages from a number, the newest opt-out first.
        Customers opt out in WhatsApp's settings or with a stop word. Only a batch with `skip_opted_out`
        skips these customers.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/opt-outs",
                query={"limit": limit, "phone_number_id": phone_number_id, "source": source},
            )
        )


class Numbers(Resource):
    """Your phone numbers with their connection, registration and business profile."""

    def release_account(self, waba_id: str) -> types.ReleasedAccount:
        """Release a business account.

        Ends the subscription to the account's notifications at Meta, and deletes the account's token and
        all its numbers from the service. Events are kept.
        """
        answer: types.ReleasedAccount = self._json(
            Call(
                "DELETE",
                self._path("/v1/accounts/{waba_id}", waba_id=waba_id),
            )
        )
        return answer

    def list(self) -> Pages[types.PhoneNumber]:
        """List numbers.

        Returns all your numbers, each with its connection state.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/numbers",
            )
        )

    def get(self, phone_number_id: str, *, refresh: bool | None = None) -> types.RefreshedPhoneNumber:
        """Get a number.

        Returns the number as the service has stored it. With `refresh=true`, the service first reads the
        number from Meta, and `meta_snapshot` has Meta's answer.
        """
        answer: types.RefreshedPhoneNumber = self._json(
            Call(
                "GET",
                self._path("/v1/numbers/{phone_number_id}", phone_number_id=phone_number_id),
                query={"refresh": refresh},
            )
        )
        return answer

    def release(self, phone_number_id: str) -> types.ReleasedNumber:
        """Release a number.

        Removes the number from the service. Its events are kept. Releasing the last number of a business
        account also releases the account.
        """
        answer: types.ReleasedNumber = self._json(
            Call(
                "DELETE",
                self._path("/v1/numbers/{phone_number_id}", phone_number_id=phone_number_id),
            )
        )
        return answer

    def get_app_data(self, phone_number_id: str) -> types.NumberAppData:
        """Get the progress of a number's app data.

        Returns the progress of importing contacts, and chats of the last six months, from the WhatsApp
        Business app. This concerns only a number that stays in that app. Data that was never requested is
        null.
        """
        answer: types.NumberAppData = self._json(
            Call(
                "GET",
                self._path("/v1/numbers/{phone_number_id}/app-data", phone_number_id=phone_number_id),
            )
        )
        return answer

    def get_business_profile(self, phone_number_id: str) -> Pages[types.BusinessProfile]:
        """Get a number's business profile.

        Returns the number's business profile, in Meta's own form.
        """
        return self._pages(
            Call(
                "GET",
                self._path("/v1/numbers/{phone_number_id}/business-profile", phone_number_id=phone_number_id),
            )
        )

    def update_business_profile(
        self,
        phone_number_id: str,
        body: types.BusinessProfile,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.UpstreamSuccess:
        """Change a number's business profile.

        Changes the number's business profile. The body and the answer have Meta's own form.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/business-profile", phone_number_id=phone_number_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def deregister(self, phone_number_id: str) -> types.UpstreamSuccess:
        """Deregister a number.

        Deregisters the number at Meta. The number cannot send until it is registered again.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/deregister", phone_number_id=phone_number_id),
            )
        )
        return answer

    def get_health(self, phone_number_id: str) -> types.NumberHealth:
        """Get a number's health.

        Asks Meta whether the number can send. The answer lists the objects on which sending depends, and
        why an object limits or blocks it.
        """
        answer: types.NumberHealth = self._json(
            Call(
                "GET",
                self._path("/v1/numbers/{phone_number_id}/health", phone_number_id=phone_number_id),
            )
        )
        return answer

    def register(
        self,
        phone_number_id: str,
        body: types.RegisterRequest | None = None,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.UpstreamSuccess:
        """Register a number.

        Registers the number with its six-digit PIN. Without `pin`, the service uses the stored PIN or makes
        a new one. Only this answer shows a new PIN, as `pin`.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/register", phone_number_id=phone_number_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def request_verification_code(
        self,
        phone_number_id: str,
        body: types.RequestCodeRequest,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.UpstreamSuccess:
        """Request a verification code.

        Asks Meta to send a verification code to the number, by SMS or voice call.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/request-code", phone_number_id=phone_number_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def subscribe(self, phone_number_id: str) -> types.Connection:
        """Repair a number's subscription.

        Subscribes to the notifications of the number's account again, and updates the connection state.
        """
        answer: types.Connection = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/subscribe", phone_number_id=phone_number_id),
            )
        )
        return answer

    def set_two_step_pin(
        self, phone_number_id: str, body: types.TwoStepRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.UpstreamSuccess:
        """Set a number's two-step PIN.

        Sets the six-digit PIN of the number's two-step verification at Meta. The service stores the PIN
        encrypted for later registrations.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/two-step", phone_number_id=phone_number_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def verify(
        self,
        phone_number_id: str,
        body: types.VerifyCodeRequest,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.UpstreamSuccess:
        """Verify a number with its code.

        Verifies the number with the code that Meta sent to it.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/numbers/{phone_number_id}/verify-code", phone_number_id=phone_number_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def connect_account(
        self, body: types.ConnectRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.ConnectedAccount:
        """Connect an account by token or code.

        Checks the token, subscribes to the account's notifications and imports its numbers.
        """
        answer: types.ConnectedAccount = self._json(
            Call(
                "POST",
                "/v1/numbers/connect",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def embedded_signup(
        self, body: types.EmbeddedSignupRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.SignedUpNumber:
        """Finish an embedded sign-up.

        Exchanges the code for a token, subscribes to the account's notifications and registers the number.
        If the service makes a new PIN for the registration, only this answer shows it, as `pin`.
        """
        answer: types.SignedUpNumber = self._json(
            Call(
                "POST",
                "/v1/numbers/embedded-signup",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def migrate(
        self, body: types.MigrateRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.NumberAtUpstream:
        """Move a number from another provider.

        Adds the number to the business account. Then verify the number and register it.
        """
        answer: types.NumberAtUpstream = self._json(
            Call(
                "POST",
                "/v1/numbers/migrate",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer


class Requests(Resource):
    """The log of the API calls of the last days that acted on your business."""

    def list(
        self,
        *,
        error_code: str | None = None,
        from_: str | datetime | None = None,
        key_prefix: str | None = None,
        limit: int | None = None,
        method: str | None = None,
        route: str | None = None,
        status: str | None = None,
        to: str | datetime | None = None,
    ) -> Pages[types.Request]:
        """List the calls of the last days.

        Returns every call that acted on the business, newest first. A call appears about a second after it
        ended. With filters, any page can hold fewer calls than `limit`, or none. Continue until
        `next_cursor` is null.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/requests",
                query={
                    "error_code": error_code,
                    "from": from_,
                    "key_prefix": key_prefix,
                    "limit": limit,
                    "method": method,
                    "route": route,
                    "status": status,
                    "to": to,
                },
            )
        )

    def get(self, request_id: str) -> types.Request:
        """Get a call by the request id.

        Returns the call whose answer carried this `X-Service-Request-Id`.
        """
        answer: types.Request = self._json(
            Call(
                "GET",
                self._path("/v1/requests/{request_id}", request_id=request_id),
            )
        )
        return answer


class Sandbox(Resource):
    """Acting as a customer or as WhatsApp in the sandbox. These operations need a test key."""

    def act_on_call(
        self, body: types.TestCallActionRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestCall:
        """Act on a call of the sandbox.

        Acts on a call as the customer: hangs up, or accepts or rejects a call that the business made.
        """
        answer: types.TestCall = self._json(
            Call(
                "POST",
                "/v1/test/call-actions",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def start_call(
        self, body: types.TestCallRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestCall:
        """Let a customer call in the sandbox.

        Calls a number of the sandbox as one of its customers. The event of the call is the same as for a
        live call, with a sample SDP. Accept or reject the call with `POST /{phone_number_id}/calls`. A call
        that nobody accepts ends after a minute.
        """
        answer: types.TestCall = self._json(
            Call(
                "POST",
                "/v1/test/calls",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def list_conversations(
        self, *, customer: str | None = None, limit: int | None = None, phone_number_id: str | None = None
    ) -> Pages[types.TestMessage]:
        """Read the sandbox's messages.

        Returns the messages of one number of the sandbox in both directions, as the customers see them,
        newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/test/conversations",
                query={"customer": customer, "limit": limit, "phone_number_id": phone_number_id},
            )
        )

    def send_echo(
        self, body: types.TestEchoRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestInbound:
        """Let the business write in its app.

        Simulates a message that the business sends to a sandbox customer in the WhatsApp Business app. The
        number must be a sandbox number with `coexistence`. The event `message.echo` is the same as for a
        live number.
        """
        answer: types.TestInbound = self._json(
            Call(
                "POST",
                "/v1/test/echoes",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def send_inbound(
        self, body: types.TestInboundRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestInbound:
        """Let a customer write to the sandbox.

        Writes to a number of the sandbox as one of its customers. The events are the same as for live
        messages. `type` is any message type, whose object has WhatsApp's form. A text may be a plain
        string. Most other types have a default object.
        """
        answer: types.TestInbound = self._json(
            Call(
                "POST",
                "/v1/test/inbound",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def decide_number(
        self, body: types.TestNumberEventRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestNumberEvent:
        """Decide about a number of the sandbox.

        Makes a decision about a number as WhatsApp does: its quality and messaging limit, throughput,
        display name or PIN. The event is the same as for a live number.
        """
        answer: types.TestNumberEvent = self._json(
            Call(
                "POST",
                "/v1/test/number-events",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def create_number(
        self, body: types.TestNumberRequest | None = None, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.PhoneNumber:
        """Add a number to the sandbox.

        Adds a further number, because the sandbox already has one. A number of the sandbox is connected at
        once and needs no endpoint.
        """
        answer: types.PhoneNumber = self._json(
            Call(
                "POST",
                "/v1/test/numbers",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def set_preference(
        self, body: types.TestPreferenceRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestPreference:
        """Let a customer of the sandbox opt out.

        Stops or resumes marketing messages, as a customer does in WhatsApp's settings. The event
        `user.preferences` is the same as for a live number. Endpoints that name `customer.opt_out` also
        receive that event.
        """
        answer: types.TestPreference = self._json(
            Call(
                "POST",
                "/v1/test/preferences",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def list_recipients(self) -> Pages[types.TestRecipient]:
        """List the magic recipients.

        Returns the recipients of the sandbox that have a special behaviour. The last four digits of a
        recipient's number determine the behaviour.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/test/recipients",
            )
        )

    def set_status(
        self, body: types.TestStatusRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestStatus:
        """Set a message's status in the sandbox.

        Sets the status of a message that a number of the sandbox sent. The event, which is the same as for
        a live message, comes at once. The status may contradict earlier statuses, so that you can also test
        that case.
        """
        answer: types.TestStatus = self._json(
            Call(
                "POST",
                "/v1/test/statuses",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def decide_template(
        self, body: types.TestTemplateRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.TestTemplate:
        """Decide about a template of the sandbox.

        Makes a decision about a template as WhatsApp's review does. Send exactly one of `event` (with
        `reason`), `quality`, `category` and `correct_category`. The event is the same as for a live
        template.
        """
        answer: types.TestTemplate = self._json(
            Call(
                "POST",
                "/v1/test/templates",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def list_texts(self) -> Pages[types.TestText]:
        """List the magic texts.

        Returns texts with a special behaviour. When the last line of a message in the sandbox is such a
        text, it determines what happens to the message, or what the customer replies.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/test/texts",
            )
        )


class Templates(Resource):
    """Message templates and their approval."""

    def list(
        self,
        *,
        category: str | None = None,
        from_: str | None = None,
        language: str | None = None,
        name: str | None = None,
        status: str | None = None,
        waba_id: str | None = None,
        limit: int | None = None,
    ) -> Pages[types.Template]:
        """List message templates.

        Returns the templates from the service's copy, newest first.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/templates",
                query={
                    "category": category,
                    "from": from_,
                    "language": language,
                    "name": name,
                    "status": status,
                    "waba_id": waba_id,
                    "limit": limit,
                },
            )
        )

    def create(
        self,
        body: types.MessageTemplate,
        *,
        from_: str | None = None,
        waba_id: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.SubmittedTemplate:
        """Submit a message template.

        Submits a template to WhatsApp for review. The body is WhatsApp's own. `waba_id` or `from`, in the
        query or in the body, chooses the business account and is not passed on to WhatsApp.
        """
        answer: types.SubmittedTemplate = self._json(
            Call(
                "POST",
                "/v1/templates",
                query={"from": from_, "waba_id": waba_id},
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get(self, template_id: str) -> types.Template:
        """Get a message template.

        Returns the template as WhatsApp has it now. The path names it by WhatsApp's template id.
        """
        answer: types.Template = self._json(
            Call(
                "GET",
                self._path("/v1/templates/{template_id}", template_id=template_id),
            )
        )
        return answer

    def edit(
        self, template_id: str, body: types.TemplateEdit, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.UpstreamSuccess:
        """Edit a message template.

        Changes the template at WhatsApp, which then reviews it again. The body is WhatsApp's own.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "POST",
                self._path("/v1/templates/{template_id}", template_id=template_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def delete(self, template_id: str, *, all_languages: bool | None = None) -> types.UpstreamSuccess:
        """Delete a message template.

        Deletes this language of the template. With `all_languages=true` it deletes all templates of the
        same name.
        """
        answer: types.UpstreamSuccess = self._json(
            Call(
                "DELETE",
                self._path("/v1/templates/{template_id}", template_id=template_id),
                query={"all_languages": all_languages},
            )
        )
        return answer

    def browse_library(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        category: str | None = None,
        from_: str | None = None,
        industry: str | None = None,
        language: str | None = None,
        limit: str | None = None,
        name: str | None = None,
        search: str | None = None,
        topic: str | None = None,
        usecase: str | None = None,
        waba_id: str | None = None,
    ) -> types.TemplateLibrary:
        """Browse WhatsApp's template library.

        Returns the templates that WhatsApp offers, in WhatsApp's own form.
        """
        answer: types.TemplateLibrary = self._json(
            Call(
                "GET",
                "/v1/templates/library",
                query={
                    "after": after,
                    "before": before,
                    "category": category,
                    "from": from_,
                    "industry": industry,
                    "language": language,
                    "limit": limit,
                    "name": name,
                    "search": search,
                    "topic": topic,
                    "usecase": usecase,
                    "waba_id": waba_id,
                },
            )
        )
        return answer

    def upload_sample(
        self, *, file: File, type: str | None = None, waba_id: str | None = None, from_: str | None = None
    ) -> types.SampleHandle:
        """Upload a header sample.

        Uploads an example file for the header of a template. Returns the handle that the template needs.
        """
        answer: types.SampleHandle = self._json(
            Call(
                "POST",
                "/v1/templates/media-handle",
                query={"from": from_},
                form={"type": type, "waba_id": waba_id},
                file=file,
            )
        )
        return answer

    def sync(self, *, from_: str | None = None, waba_id: str | None = None) -> types.Sync:
        """Re-read templates from WhatsApp.

        Updates the service's copy of the templates from one business account or from all. It also imports
        templates that were created elsewhere.
        """
        answer: types.Sync = self._json(
            Call(
                "POST",
                "/v1/templates/sync",
                query={"from": from_, "waba_id": waba_id},
            )
        )
        return answer


class Tenant(Resource):
    """The business that the key belongs to."""

    def get(self) -> types.Tenant:
        """Get the tenant.

        Returns the tenant with its checklist. Works in every status of the tenant.
        """
        answer: types.Tenant = self._json(
            Call(
                "GET",
                "/v1/tenant",
            )
        )
        return answer

    def update(
        self, body: types.TenantChangeRequest | None = None, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Tenant:
        """Change the tenant.

        Changes the name, the billing e-mail or the retention.
        """
        answer: types.Tenant = self._json(
            Call(
                "PATCH",
                "/v1/tenant",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer


class Tenants(Resource):
    """The businesses of a platform. These operations need a platform key."""

    def list_platform_keys(self, *, limit: int | None = None) -> Pages[types.ApiKey]:
        """List the platform's own keys.

        Returns the keys of the caller's environment. Each key is shown by its prefix, never in full.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/platform-keys",
                query={"limit": limit},
            )
        )

    def revoke_platform_key(self, key_id: str) -> types.RevokedKey:
        """Revoke one of the platform's own keys.

        The key stops working at once, or within 10 seconds during an outage.
        """
        answer: types.RevokedKey = self._json(
            Call(
                "DELETE",
                self._path("/v1/platform-keys/{key_id}", key_id=key_id),
            )
        )
        return answer

    def rotate_platform_key(self, key_id: str) -> types.RotatedKey:
        """Rotate one of the platform's own keys.

        Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours.
        """
        answer: types.RotatedKey = self._json(
            Call(
                "POST",
                self._path("/v1/platform-keys/{key_id}/rotate", key_id=key_id),
            )
        )
        return answer

    def list(self, *, external_ref: str | None = None, limit: int | None = None) -> Pages[types.Tenant]:
        """List the tenants of the platform.

        Returns the tenants of the platform, newest first. With a live key, `external_ref` finds only live
        tenants. A test key sees only sandbox tenants.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/tenants",
                query={"external_ref": external_ref, "limit": limit},
            )
        )

    def create(
        self, body: types.TenantCreateRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Tenant:
        """Create a tenant.

        The tenant is active at once.
        """
        answer: types.Tenant = self._json(
            Call(
                "POST",
                "/v1/tenants",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get_by_id(self, tenant_id: str) -> types.Tenant:
        """Get a tenant of the platform.

        The answer is 404 for a tenant of another platform.
        """
        answer: types.Tenant = self._json(
            Call(
                "GET",
                self._path("/v1/tenants/{tenant_id}", tenant_id=tenant_id),
            )
        )
        return answer

    def list_usage(
        self, *, day: str | None = None, limit: int | None = None, month: str | None = None
    ) -> Pages[types.Usage]:
        """List the usage of the platform's tenants.

        Returns one entry for each business, the newest business first. An entry counts a day or a month in
        UTC. It counts the live environment, or the sandbox for a business that works only there. With a
        test key, only businesses that work only in the sandbox are returned.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/usage",
                query={"day": day, "limit": limit, "month": month},
            )
        )


class Webhooks(Resource):
    """Endpoints that receive events, with their deliveries and replays."""

    def list_deliveries(
        self,
        *,
        endpoint_id: str | None = None,
        event_id: str | None = None,
        event_type: str | None = None,
        from_: str | datetime | None = None,
        http_status: int | None = None,
        status: Literal["dead", "delivered", "failed", "pending"] | None = None,
        to: str | datetime | None = None,
        limit: int | None = None,
    ) -> Pages[types.Delivery]:
        """List webhook deliveries.

        Returns the deliveries, newest first. A delivery is one event on its way to one endpoint. A request
        searches at most 10,000 deliveries. When few match, a page can have fewer deliveries than `limit`,
        or none. Continue until `next_cursor` is null.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/webhook-deliveries",
                query={
                    "endpoint_id": endpoint_id,
                    "event_id": event_id,
                    "event_type": event_type,
                    "from": from_,
                    "http_status": http_status,
                    "status": status,
                    "to": to,
                    "limit": limit,
                },
            )
        )

    def get_delivery(self, delivery_id: str) -> types.DeliveryWithLog:
        """Get a webhook delivery.

        Returns the delivery with its last 20 attempts.
        """
        answer: types.DeliveryWithLog = self._json(
            Call(
                "GET",
                self._path("/v1/webhook-deliveries/{delivery_id}", delivery_id=delivery_id),
            )
        )
        return answer

    def replay_delivery(self, delivery_id: str) -> types.Replayed:
        """Send a delivery again.

        Makes one attempt at once, signed with the current secrets. The answer shows the result.
        """
        answer: types.Replayed = self._json(
            Call(
                "POST",
                self._path("/v1/webhook-deliveries/{delivery_id}/replay", delivery_id=delivery_id),
            )
        )
        return answer

    def list(self, *, uid: str | None = None, limit: int | None = None) -> Pages[types.Endpoint]:
        """List webhook endpoints.

        Returns the endpoints without their secrets.
        """
        return self._pages(
            Call(
                "GET",
                "/v1/webhooks",
                query={"uid": uid, "limit": limit},
            )
        )

    def create(
        self, body: types.EndpointRequest | None = None, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.CreatedEndpoint:
        """Create a webhook endpoint.

        Sends the verify ping. Only this answer shows the secret.
        """
        answer: types.CreatedEndpoint = self._json(
            Call(
                "POST",
                "/v1/webhooks",
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def get(self, endpoint_id: str) -> types.EndpointWithHealth:
        """Get a webhook endpoint.

        Returns the endpoint's settings, state and health, without the secret.
        """
        answer: types.EndpointWithHealth = self._json(
            Call(
                "GET",
                self._path("/v1/webhooks/{endpoint_id}", endpoint_id=endpoint_id),
            )
        )
        return answer

    def update(
        self,
        endpoint_id: str,
        body: types.EndpointChangeRequest | None = None,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.Endpoint:
        """Change a webhook endpoint.

        A new url is verified by a ping before it is stored.
        """
        answer: types.Endpoint = self._json(
            Call(
                "PATCH",
                self._path("/v1/webhooks/{endpoint_id}", endpoint_id=endpoint_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def delete(self, endpoint_id: str) -> types.Deleted:
        """Delete a webhook endpoint.

        Deliveries that still wait for the endpoint are never sent.
        """
        answer: types.Deleted = self._json(
            Call(
                "DELETE",
                self._path("/v1/webhooks/{endpoint_id}", endpoint_id=endpoint_id),
            )
        )
        return answer

    def preview_filter(
        self,
        endpoint_id: str,
        body: types.FilterPreviewRequest,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.FilterPreview:
        """Preview a filter by content.

        Evaluates a filter on the endpoint's recent events. Nothing is stored.
        """
        answer: types.FilterPreview = self._json(
            Call(
                "POST",
                self._path("/v1/webhooks/{endpoint_id}/preview-filter", endpoint_id=endpoint_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def replay(
        self, endpoint_id: str, body: types.ReplayRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.ReplayPreview | types.Queued:
        """Replay deliveries to an endpoint.

        Queues new deliveries of the events of a time range. They are sent in the background, after new
        events.
        """
        answer: types.ReplayPreview | types.Queued = self._json(
            Call(
                "POST",
                self._path("/v1/webhooks/{endpoint_id}/replay", endpoint_id=endpoint_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def resume(self, endpoint_id: str) -> types.EndpointWithHealth:
        """Resume a webhook endpoint.

        Closes the endpoint's circuit, ends a pause, and sends the waiting deliveries.
        """
        answer: types.EndpointWithHealth = self._json(
            Call(
                "POST",
                self._path("/v1/webhooks/{endpoint_id}/resume", endpoint_id=endpoint_id),
            )
        )
        return answer

    def rotate_secret(
        self,
        endpoint_id: str,
        body: types.RotateSecretRequest | None = None,
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> types.RotatedSecret:
        """Rotate an endpoint's secret.

        Both secrets sign every delivery until the overlap ends.
        """
        answer: types.RotatedSecret = self._json(
            Call(
                "POST",
                self._path("/v1/webhooks/{endpoint_id}/rotate-secret", endpoint_id=endpoint_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def test(
        self, endpoint_id: str, body: types.ExampleRequest, *, extra_body: Mapping[str, Any] | None = None
    ) -> types.Example:
        """Send an example event to an endpoint.

        Sends the example of an event type, marked as a test. The event is neither stored nor counted. The
        answer contains the endpoint's answer.
        """
        answer: types.Example = self._json(
            Call(
                "POST",
                self._path("/v1/webhooks/{endpoint_id}/test", endpoint_id=endpoint_id),
                body=body,
                extra_body=extra_body,
            )
        )
        return answer

    def verify(self, endpoint_id: str) -> types.Verified:
        """Verify a webhook endpoint.

        Sends the verify ping. A passed ping makes the endpoint active, unless it is paused.
        """
        answer: types.Verified = self._json(
            Call(
                "POST",
                self._path("/v1/webhooks/{endpoint_id}/verify", endpoint_id=endpoint_id),
            )
        )
        return answer


class Resources:
    """Every group of operations."""

    def __init__(self, transport: Transport) -> None:
        self.api_keys = ApiKeys(transport)
        self.admin = Admin(transport)
        self.billing = Billing(transport)
        self.connect_sessions = ConnectSessions(transport)
        self.console_sessions = ConsoleSessions(transport)
        self.customer_data = CustomerData(transport)
        self.device_logins = DeviceLogins(transport)
        self.events = Events(transport)
        self.flows = Flows(transport)
        self.health = Health(transport)
        self.ledger = Ledger(transport)
        self.media = Media(transport)
        self.messages = Messages(transport)
        self.numbers = Numbers(transport)
        self.requests = Requests(transport)
        self.sandbox = Sandbox(transport)
        self.templates = Templates(transport)
        self.tenant = Tenant(transport)
        self.tenants = Tenants(transport)
        self.webhooks = Webhooks(transport)
        self.test_world = self.sandbox  # deprecated
