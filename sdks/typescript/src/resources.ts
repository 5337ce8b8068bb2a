// Resources of the API, one method per operation. Generated from docs/openapi.json by `make sdks`.

import { type Download, type Pages, Resource, type Transport } from "./transport.js";
import type { FileInput, KeyedOptions, RequestOptions } from "./calls.js";
import type { Schemas } from "./schemas.js";

/** The API keys of your business. */
export class ApiKeys extends Resource {
  /** List API keys. Returns the keys of the caller's environment. Each key is shown by its prefix, never in full. */
  list(query: { limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["ApiKey"]> {
    return this.pages({ method: "GET", path: "/v1/api-keys", query }, options);
  }

  /** Create an API key. Only this answer shows the full key. A key cannot create a key with scopes or numbers that it lacks itself, or a key that expires after it does: the answer is 403. */
  create(body: Schemas["ApiKeyRequest"], options: RequestOptions = {}): Promise<Schemas["CreatedApiKey"]> {
    return this.json({ method: "POST", path: "/v1/api-keys", body }, options);
  }

  /** Revoke an API key. The key stops working at once, or within 10 seconds during an outage. A key may revoke itself, even without the scope `keys`. */
  revoke(keyId: string, options: RequestOptions = {}): Promise<Schemas["RevokedKey"]> {
    return this.json({ method: "DELETE", path: `/v1/api-keys/${encodeURIComponent(keyId)}` }, options);
  }

  /** Rotate an API key. Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours. */
  rotate(keyId: string, options: RequestOptions = {}): Promise<Schemas["RotatedKey"]> {
    return this.json({ method: "POST", path: `/v1/api-keys/${encodeURIComponent(keyId)}/rotate` }, options);
  }
}

/** Operations for the service's staff. They need a console session token. */
export class Admin extends Resource {
  /** Find API keys of all tenants and platforms. Returns the keys that pass the filters, newest first. Each key is shown by its prefix, never in full. */
  listApiKeys(query: { app_id?: string | null; prefix?: string | null; tenant_id?: string | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["AnyApiKey"]> {
    return this.pages({ method: "GET", path: "/v1/admin/api-keys", query }, options);
  }

  /** Revoke any API key. The key stops working at once, or within 10 seconds during an outage. */
  revokeApiKey(keyId: string, options: RequestOptions = {}): Promise<Schemas["RevokedKey"]> {
    return this.json({ method: "DELETE", path: `/v1/admin/api-keys/${encodeURIComponent(keyId)}` }, options);
  }

  /** List platform apps. Returns every platform app with the count of its tenants. */
  listApps(query: { limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["AppWithTenants"]> {
    return this.pages({ method: "GET", path: "/v1/admin/apps", query }, options);
  }

  /** Create a platform app. A platform app acts for many tenants. It has no key yet: create one with a separate call. */
  createApp(body: Schemas["AppRequest"], options: RequestOptions = {}): Promise<Schemas["App"]> {
    return this.json({ method: "POST", path: "/v1/admin/apps", body }, options);
  }

  /** List a platform app's keys. Returns the app's keys, newest first. Each key is shown by its prefix, never in full. */
  listAppKeys(appId: string, query: { limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["ApiKey"]> {
    return this.pages({ method: "GET", path: `/v1/admin/apps/${encodeURIComponent(appId)}/keys`, query }, options);
  }

  /** Create a key of a platform app. Only this answer shows the full key. */
  createAppKey(appId: string, body: Schemas["AppKeyRequest"], options: RequestOptions = {}): Promise<Schemas["AppKey"]> {
    return this.json({ method: "POST", path: `/v1/admin/apps/${encodeURIComponent(appId)}/keys`, body }, options);
  }

  /** Revoke a platform app's key. The key stops working at once, or within 10 seconds during an outage. */
  revokeAppKey(appId: string, keyId: string, options: RequestOptions = {}): Promise<Schemas["RevokedKey"]> {
    return this.json({ method: "DELETE", path: `/v1/admin/apps/${encodeURIComponent(appId)}/keys/${encodeURIComponent(keyId)}` }, options);
  }

  /** Rotate a platform app's key. Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours. */
  rotateAppKey(appId: string, keyId: string, options: RequestOptions = {}): Promise<Schemas["RotatedKey"]> {
    return this.json({ method: "POST", path: `/v1/admin/apps/${encodeURIComponent(appId)}/keys/${encodeURIComponent(keyId)}/rotate` }, options);
  }

  /** List audit entries. Returns the changes made by staff, members of teams and API keys, newest first. */
  listAudit(query: { action?: string | null; tenant_id?: string | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["AuditEntry"]> {
    return this.pages({ method: "GET", path: "/v1/admin/audit", query }, options);
  }

  /** Show how every tenant pays. Returns the tenants by name, those with an overdue invoice first. Also works while billing is off. */
  billing(options: RequestOptions = {}): Promise<Schemas["AdminBilling"]> {
    return this.json({ method: "GET", path: "/v1/admin/billing" }, options);
  }

  /** Show the state of the service. Counts due retries, dead deliveries and open circuits. Shows the state of tokens, partitions and the key mirror. */
  health(options: RequestOptions = {}): Promise<Schemas["HealthReport"]> {
    return this.json({ method: "GET", path: "/v1/admin/health" }, options);
  }

  /** Read the last mail to an address. Works only if the setting `EMAIL_MODE` is `log`. Otherwise the answer is 404. */
  lastMail(query: { email: string }, options: RequestOptions = {}): Promise<Schemas["LastMail"]> {
    return this.json({ method: "GET", path: "/v1/admin/mail/last", query }, options);
  }

  /** List the numbers of all tenants. Returns the numbers of all businesses, newest first, optionally only those of one connection state. */
  listNumbers(query: { connection_state?: "pending" | "connected" | "disconnected" | null } = {}, options: RequestOptions = {}): Pages<Schemas["AdminNumber"]> {
    return this.pages({ method: "GET", path: "/v1/admin/numbers", query }, options);
  }

  /** List all tenants. Returns the tenants, newest first, with the data for their review. `status` selects one status. */
  listTenants(query: { status?: "pending_approval" | "active" | "rejected" | "suspended" | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["AdminTenant"]> {
    return this.pages({ method: "GET", path: "/v1/admin/tenants", query }, options);
  }

  /** Approve a tenant. Lets the tenant use `/v1`, starts its trial, and emails the tenant. */
  approveTenant(tenantId: string, options: RequestOptions = {}): Promise<Schemas["Approved"]> {
    return this.json({ method: "POST", path: `/v1/admin/tenants/${encodeURIComponent(tenantId)}/approve` }, options);
  }

  /** Reinstate a suspended tenant. The tenant becomes `active`, and its waiting deliveries are sent. */
  reinstateTenant(tenantId: string, options: RequestOptions = {}): Promise<Schemas["Reinstated"]> {
    return this.json({ method: "POST", path: `/v1/admin/tenants/${encodeURIComponent(tenantId)}/reinstate` }, options);
  }

  /** Reject a tenant. The reason is stored and mailed to the applicant. */
  rejectTenant(tenantId: string, body: Schemas["RejectRequest"], options: RequestOptions = {}): Promise<Schemas["Rejected"]> {
    return this.json({ method: "POST", path: `/v1/admin/tenants/${encodeURIComponent(tenantId)}/reject`, body }, options);
  }

  /** Suspend a tenant. Sending stops. Events are still recorded, and their deliveries wait for the reinstatement. */
  suspendTenant(tenantId: string, body: Schemas["SuspendRequest"], options: RequestOptions = {}): Promise<Schemas["Suspended"]> {
    return this.json({ method: "POST", path: `/v1/admin/tenants/${encodeURIComponent(tenantId)}/suspend`, body }, options);
  }
}

/** The plan, invoices and payments of your business. */
export class Billing extends Resource {
  /** Get plan, numbers and next charge. Returns the plan, the active numbers, the next charge, the billing profile and the mandate. */
  get(options: RequestOptions = {}): Promise<Schemas["Billing"]> {
    return this.json({ method: "GET", path: "/v1/billing" }, options);
  }

  /** Get a credit note. Returns the credit note as a PDF. An invoice lists the ids of its credit notes in `credit_notes`. */
  getCreditNote(creditNoteId: string, options: RequestOptions = {}): Promise<Download> {
    return this.download({ method: "GET", path: `/v1/billing/credit-notes/${encodeURIComponent(creditNoteId)}`, accept: "application/pdf" }, options);
  }

  /** List invoices. Returns the invoices of the business, newest first. */
  listInvoices(query: { limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["InvoiceSummary"]> {
    return this.pages({ method: "GET", path: "/v1/billing/invoices", query }, options);
  }

  /** Get an invoice. Returns a printable HTML page. Returns JSON or a PDF if `Accept` prefers that. */
  getInvoice(invoiceId: string, options: RequestOptions = {}): Promise<Schemas["Invoice"]> {
    return this.json({ method: "GET", path: `/v1/billing/invoices/${encodeURIComponent(invoiceId)}` }, options);
  }

  /** Pay an invoice. Returns a link to the payment page of an open or failed invoice. */
  payInvoice(invoiceId: string, body?: Schemas["ReturnUrlRequest"], options: RequestOptions = {}): Promise<Schemas["Payment"]> {
    return this.json({ method: "POST", path: `/v1/billing/invoices/${encodeURIComponent(invoiceId)}/pay`, body }, options);
  }

  /** Set up autopay. Returns a link to the page on which you approve the mandate. */
  createMandate(body?: Schemas["MandateRequest"], options: RequestOptions = {}): Promise<Schemas["CreatedMandate"]> {
    return this.json({ method: "POST", path: "/v1/billing/mandate", body }, options);
  }

  /** Change the billing profile. The change applies to invoices that are issued from now on. Issued invoices never change. */
  updateProfile(body?: Schemas["ProfileRequest"], options: RequestOptions = {}): Promise<Schemas["Profile"]> {
    return this.json({ method: "PATCH", path: "/v1/billing/profile", body }, options);
  }
}

/** Hosted pages on which your customer connects a WhatsApp Business account. */
export class ConnectSessions extends Resource {
  /** Create a connect session. Creates a link to a hosted page on which your customer connects a WhatsApp Business account. The link is valid for one hour. */
  create(body: Schemas["ConnectSessionRequest"], options: RequestOptions = {}): Promise<Schemas["CreatedConnectSession"]> {
    return this.json({ method: "POST", path: "/v1/connect-sessions", body }, options);
  }

  /** Get a connect session. Returns the status of the session, and the account and numbers that the customer connected. */
  get(sessionId: string, options: RequestOptions = {}): Promise<Schemas["ConnectSession"]> {
    return this.json({ method: "GET", path: `/v1/connect-sessions/${encodeURIComponent(sessionId)}` }, options);
  }
}

/** Log-ins of people, each with a console session token. */
export class ConsoleSessions extends Resource {
  /** Log in. Accepts the email address, the password and, with a second factor, `otp`. The console token is valid for 12 hours. */
  create(body: Schemas["ConsoleSessionRequest"], options: RequestOptions = {}): Promise<Schemas["CreatedConsoleSession"]> {
    return this.json({ method: "POST", path: "/v1/console/sessions", body }, options);
  }

  /** Get the current console session. Returns the person to whom the console token of this request belongs. */
  get(options: RequestOptions = {}): Promise<Schemas["ConsoleSession"]> {
    return this.json({ method: "GET", path: "/v1/console/sessions/current" }, options);
  }

  /** Log out. Ends the session: the console token of this request stops working. */
  end(options: RequestOptions = {}): Promise<void> {
    return this.nothing({ method: "DELETE", path: "/v1/console/sessions/current" }, options);
  }
}

/** Erasing one customer's data, and exporting data to files. */
export class CustomerData extends Resource {
  /** Erase a customer's data. Erases everything that is stored about one customer, in both environments. The path names the customer by wa_id or user_id. The erasure runs in the background and cannot be undone. `GET /v1/erasures/{erasure_id}` returns the receipt. */
  erase(customerId: string, options: RequestOptions = {}): Promise<Schemas["Erasure"]> {
    return this.json({ method: "DELETE", path: `/v1/customers/${encodeURIComponent(customerId)}/data` }, options);
  }

  /** List erasures. Returns the receipts of erasures, newest first. */
  listErasures(query: { limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["Erasure"]> {
    return this.pages({ method: "GET", path: "/v1/erasures", query }, options);
  }

  /** Get the receipt of an erasure. Returns the receipt, which shows what was erased once the erasure is completed. */
  getErasure(erasureId: string, options: RequestOptions = {}): Promise<Schemas["Erasure"]> {
    return this.json({ method: "GET", path: `/v1/erasures/${encodeURIComponent(erasureId)}` }, options);
  }

  /** Export data. Writes a file in the background, with one JSON object in each line. The file has one customer's data, or all data of the business in the key's environment. */
  createExport(body?: Schemas["ExportRequest"], options: RequestOptions = {}): Promise<Schemas["Export"]> {
    return this.json({ method: "POST", path: "/v1/exports", body }, options);
  }

  /** Get the state of an export. Returns the export, whose status says whether the file can be downloaded. */
  getExport(exportId: string, options: RequestOptions = {}): Promise<Schemas["Export"]> {
    return this.json({ method: "GET", path: `/v1/exports/${encodeURIComponent(exportId)}` }, options);
  }

  /** Download an export. Returns the file. Each line is a JSON object such as `{"kind": …, "data": {…}}`. While the file is being written, the answer is 404. */
  downloadExport(exportId: string, options: RequestOptions = {}): Promise<Download> {
    return this.download({ method: "GET", path: `/v1/exports/${encodeURIComponent(exportId)}/file`, accept: "application/x-ndjson" }, options);
  }
}

/** How a program without a browser gets an API key. A person confirms the key in the console. */
export class DeviceLogins extends Resource {
  /** Start a device log-in. Show the person `user_code` and `verification_url_complete`, and redeem `device_code` every `interval_seconds`. Both codes are valid for ten minutes. */
  create(body: Schemas["DeviceLoginRequest"], options: RequestOptions = {}): Promise<Schemas["DeviceLogin"]> {
    return this.json({ method: "POST", path: "/v1/device-logins", body }, options);
  }

  /** Redeem a device log-in. Returns the status. The first answer after the confirmation contains the API key. A code that is unknown, too old or already redeemed is `expired`. */
  redeem(body: Schemas["DeviceCodeRequest"], options: RequestOptions = {}): Promise<Schemas["RedeemedDeviceLogin"]> {
    return this.json({ method: "POST", path: "/v1/device-logins/redeem", body }, options);
  }
}

/** The log of everything that happened to your messages, numbers and templates. */
export class Events extends Resource {
  /** Get analytics. Returns figures about messages and webhook deliveries by hour or day, in UTC. A status is counted in the hour in which its message was sent or received. */
  getAnalytics(query: { direction?: "inbound" | "outbound" | null; from: string | Date; group_by?: string | null; interval?: "day" | "hour" | null; phone_number_id?: string | null; template?: string | null; to: string | Date }, options: RequestOptions = {}): Promise<Schemas["Analytics"]> {
    return this.json({ method: "GET", path: "/v1/analytics", query }, options);
  }

  /** Search the event log. Returns the events without their bodies, newest first, each with the counts of its deliveries. A request searches at most 10,000 events. When few match, a page can have fewer events than `limit`, or none. Continue until `next_cursor` is null. */
  list(query: { from?: string | Date | null; limit?: number | null; phone_number_id?: string | null; to?: string | Date | null; type?: string | null; user_id?: string | null; wa_id?: string | null; waba_id?: string | null; wamid?: string | null } = {}, options: RequestOptions = {}): Pages<Schemas["EventSummary"]> {
    return this.pages({ method: "GET", path: "/v1/events", query }, options);
  }

  /** Get an event. Returns the event's envelope exactly as it is delivered, and all deliveries of the event. */
  get(eventId: string, options: RequestOptions = {}): Promise<Schemas["EventWithDeliveries"]> {
    return this.json({ method: "GET", path: `/v1/events/${encodeURIComponent(eventId)}` }, options);
  }

  /** Listen to events as they happen. Returns a stream of server-sent events. `data` is the event exactly as webhooks deliver it, and `id` is the place in the stream. To continue without gaps, send the last `id` as `Last-Event-ID`. Each key has one stream: a second stream ends the first. A comment is sent every 15 seconds. The stream may end at any time: reconnect after `retry` milliseconds. */
  stream(query: { filter?: string | null; phone_number_id?: string | null; type?: string | null } = {}, options: RequestOptions = {}): Promise<Download> {
    return this.download({ method: "GET", path: "/v1/events/stream", query, accept: "text/event-stream" }, options);
  }
}

/** The endpoint of a number that answers the data requests of WhatsApp Flows. */
export class Flows extends Resource {
  /** Get a number's Flow endpoint. Returns your URL, the address to set in your Flows, and the result of the last data request. */
  getEndpoint(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["FlowEndpoint"]> {
    return this.json({ method: "GET", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/flow-endpoint` }, options);
  }

  /** Set a number's Flow endpoint. Sets the URL to which data requests are forwarded. The first call also creates a key pair, uploads the public key to WhatsApp, and returns the signing secret. Later calls change only the URL. */
  setEndpoint(phoneNumberId: string, body: Schemas["FlowEndpointRequest"], options: RequestOptions = {}): Promise<Schemas["FlowEndpoint"]> {
    return this.json({ method: "PUT", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/flow-endpoint`, body }, options);
  }

  /** Delete a number's Flow endpoint. Deletes the Flow endpoint and its keys. From then on, the number's Flows fail when they request data. */
  deleteEndpoint(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["DeletedFlowEndpoint"]> {
    return this.json({ method: "DELETE", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/flow-endpoint` }, options);
  }

  /** Rotate the key pair of a Flow endpoint. Creates a new key pair and uploads the public key to WhatsApp. This is also needed after the number was registered again, and when WhatsApp reports `public-key-missing`. */
  rotateEndpointKey(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["FlowEndpoint"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/flow-endpoint/rotate-key` }, options);
  }

  /** Rotate the signing secret of a Flow endpoint. Creates a new signing secret and returns it. For 24 hours, the old secret also signs requests. */
  rotateEndpointSecret(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["FlowEndpoint"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/flow-endpoint/rotate-secret` }, options);
  }
}

/** Health checks of the service. They need no credentials. */
export class Health extends Resource {
  /** Check that the service is up. Answers 200 while the database answers, and 503 otherwise. The operation needs no credentials. */
  health(options: RequestOptions = {}): Promise<Schemas["Health"]> {
    return this.json({ method: "GET", path: "/v1/health" }, options);
  }

  /** Check that the process is alive. Answers 200 as long as the process can answer, whatever the state of the database. A supervisor can use it to decide whether to restart a process. */
  live(options: RequestOptions = {}): Promise<Schemas["Live"]> {
    return this.json({ method: "GET", path: "/v1/health/live" }, options);
  }

  /** Check that the process is ready. Answers 200 when the database answers and has all migrations and partitions, and 503 otherwise. */
  ready(options: RequestOptions = {}): Promise<Schemas["Ready"]> {
    return this.json({ method: "GET", path: "/v1/health/ready" }, options);
  }
}

/** The events and messages of a day, counted by outcome. */
export class Ledger extends Resource {
  /** Account for every event of a day. Counts the events and messages of a day in UTC by outcome. For each endpoint, `accepted` is the sum of `delivered`, `waiting`, `dead` and `expired`. The call counts the event log and the deliveries as they are now. */
  get(query: { day?: string | null; hour?: number | null } = {}, options: RequestOptions = {}): Promise<Schemas["Ledger"]> {
    return this.json({ method: "GET", path: "/v1/ledger", query }, options);
  }
}

/** Files that you send, and files that customers send. */
export class Media extends Resource {
  /** Upload a media file. Uploads the file to WhatsApp and returns the media id, which a message can name. */
  upload(form: { file: FileInput; type?: string; from: string }, options: RequestOptions = {}): Promise<Schemas["UploadedMedia"]> {
    return this.json({ method: "POST", path: "/v1/media", form }, options);
  }

  /** Download a media file. Returns the bytes of a file that a customer sent or that you uploaded. With `meta=true` it returns WhatsApp's description of the file as JSON. */
  get(mediaId: string, query: { from?: string | null; meta?: boolean | null } = {}, options: RequestOptions = {}): Promise<Download> {
    return this.download({ method: "GET", path: `/v1/media/${encodeURIComponent(mediaId)}`, query, accept: "application/octet-stream" }, options);
  }

  /** Delete an uploaded media file. Deletes the file from WhatsApp's servers. */
  delete(mediaId: string, query: { from?: string | null } = {}, options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "DELETE", path: `/v1/media/${encodeURIComponent(mediaId)}`, query }, options);
  }
}

/** Single messages, scheduled messages and batches. */
export class Messages extends Resource {
  /** List messages. Returns the messages without their contents, newest first. Any page can hold fewer messages than `limit`, or none. Continue until `next_cursor` is null. */
  list(query: { batch_id?: string | null; direction?: "inbound" | "outbound" | null; from?: string | Date | null; limit?: number | null; phone_number_id?: string | null; referral_source_id?: string | null; status?: "accepted" | "delivered" | "failed" | "read" | "received" | "sent" | "unknown" | null; template?: string | null; to?: string | Date | null; user_id?: string | null; wa_id?: string | null } = {}, options: RequestOptions = {}): Pages<Schemas["Message"]> {
    return this.pages({ method: "GET", path: "/v1/messages", query }, options);
  }

  /** Send a message. Sends one message. The body is that of WhatsApp's own `/messages`, with `from` added. The answer is WhatsApp's own. */
  send(body: Schemas["OutgoingMessage"], options: KeyedOptions = {}): Promise<Schemas["SentMessage"]> {
    return this.json({ method: "POST", path: "/v1/messages", body, keyed: true }, options);
  }

  /** Get a message. Returns the status of the message with times, errors as WhatsApp describes them, the events with their deliveries, and the content while it is stored. Percent-encode the wamid in the path, because it can contain `=`, `/` and `+`. */
  get(messageId: string, options: RequestOptions = {}): Promise<Schemas["OneMessage"]> {
    return this.json({ method: "GET", path: `/v1/messages/${encodeURIComponent(messageId)}` }, options);
  }

  /** List batches. Returns the batches, newest first. */
  listBatches(query: { client_ref?: string | null; limit?: number | null; status?: "cancelled" | "completed" | "queued" | null } = {}, options: RequestOptions = {}): Pages<Schemas["Batch"]> {
    return this.pages({ method: "GET", path: "/v1/messages/batch", query }, options);
  }

  /** Send a batch of messages. Sends up to 10,000 messages from one number, as fast as the number may send. Each message creates a `message.outbound` event. */
  createBatch(body: Schemas["MessageBatch"], options: RequestOptions = {}): Promise<Schemas["CreatedBatch"] | Schemas["RepeatedBatch"]> {
    return this.json({ method: "POST", path: "/v1/messages/batch", body }, options);
  }

  /** Get a batch. Returns the status and the counts of the batch, what the batch waits for, and the outcomes of its messages. */
  getBatch(batchId: string, options: RequestOptions = {}): Promise<Schemas["BatchDetails"]> {
    return this.json({ method: "GET", path: `/v1/messages/batch/${encodeURIComponent(batchId)}` }, options);
  }

  /** Change the time of a batch. Changes the time from which the batch is sent; `null` sends the batch now. The answer is 409 once the first message of the batch has been sent. */
  rescheduleBatch(batchId: string, body?: Schemas["BatchTimeRequest"], options: RequestOptions = {}): Promise<Schemas["Batch"]> {
    return this.json({ method: "PATCH", path: `/v1/messages/batch/${encodeURIComponent(batchId)}`, body }, options);
  }

  /** Cancel a batch. Stops the batch. Items that are already being sent are still sent. All other unsent items become `skipped`. */
  cancelBatch(batchId: string, options: RequestOptions = {}): Promise<Schemas["Batch"]> {
    return this.json({ method: "POST", path: `/v1/messages/batch/${encodeURIComponent(batchId)}/cancel` }, options);
  }

  /** List the items of a batch. Returns the items in the order in which they were submitted, each with WhatsApp's answer. */
  listBatchItems(batchId: string, query: { limit?: number | null; status?: "accepted" | "failed" | "pending" | "skipped" | null } = {}, options: RequestOptions = {}): Pages<Schemas["BatchItem"]> {
    return this.pages({ method: "GET", path: `/v1/messages/batch/${encodeURIComponent(batchId)}/items`, query }, options);
  }

  /** Retry a batch. Queues again the failed items that were certainly not sent. These are items that WhatsApp throttled, and items for which WhatsApp rejected the token. */
  retryBatch(batchId: string, options: RequestOptions = {}): Promise<Schemas["Batch"]> {
    return this.json({ method: "POST", path: `/v1/messages/batch/${encodeURIComponent(batchId)}/retry` }, options);
  }

  /** Mark a message as read. Marks a customer's message as read. With `typing_indicator`, the customer also sees that you are typing. */
  markRead(body: Schemas["ReadMark"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: "/v1/messages/read", body }, options);
  }

  /** List scheduled messages. Returns the scheduled messages, newest first. */
  listScheduled(query: { limit?: number | null; status?: "accepted" | "cancelled" | "failed" | "scheduled" | "sending" | null } = {}, options: RequestOptions = {}): Pages<Schemas["Scheduled"]> {
    return this.pages({ method: "GET", path: "/v1/messages/scheduled", query }, options);
  }

  /** Schedule a message. Sends one message later. The body is that of `POST /v1/messages`, with `send_at`, `customer_hours`, or both. The message is sent after `send_at`, and only in the given hours of the customer's day. */
  schedule(body: Schemas["LaterMessage"], options: KeyedOptions = {}): Promise<Schemas["Scheduled"]> {
    return this.json({ method: "POST", path: "/v1/messages/scheduled", body, keyed: true }, options);
  }

  /** Get a scheduled message. Returns the state of the scheduled message, and the result once the message has been sent. */
  getScheduled(scheduledId: string, options: RequestOptions = {}): Promise<Schemas["Scheduled"]> {
    return this.json({ method: "GET", path: `/v1/messages/scheduled/${encodeURIComponent(scheduledId)}` }, options);
  }

  /** Change the time of a scheduled message. Changes the time while the message waits. Once the message is being sent, the answer is 409. */
  reschedule(scheduledId: string, body?: Schemas["SendAtRequest"], options: RequestOptions = {}): Promise<Schemas["Scheduled"]> {
    return this.json({ method: "PATCH", path: `/v1/messages/scheduled/${encodeURIComponent(scheduledId)}`, body }, options);
  }

  /** Cancel a scheduled message. Cancels the message while it waits. Once the message is being sent, the answer is 409. */
  cancelScheduled(scheduledId: string, options: RequestOptions = {}): Promise<Schemas["Scheduled"]> {
    return this.json({ method: "POST", path: `/v1/messages/scheduled/${encodeURIComponent(scheduledId)}/cancel` }, options);
  }

  /** Get a customer of a number. Returns when the customer and you last wrote, the end of the 24-hour window, whether the customer stopped marketing messages, the last ad that the customer came from, and the known ids. The path names the customer by wa_id or user_id. For a customer without messages, the members about messages are null. */
  getCustomer(customerId: string, phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["Customer"]> {
    return this.json({ method: "GET", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/customers/${encodeURIComponent(customerId)}` }, options);
  }

  /** List opt-outs. Returns the customers who want no marketing messages from a number, the newest opt-out first. Customers opt out in WhatsApp's settings or with a stop word. Only a batch with `skip_opted_out` skips these customers. */
  listOptOuts(query: { limit?: number | null; phone_number_id?: string | null; source?: "stop_word" | "whatsapp" | null } = {}, options: RequestOptions = {}): Pages<Schemas["OptedOutCustomer"]> {
    return this.pages({ method: "GET", path: "/v1/opt-outs", query }, options);
  }
}

/** Your phone numbers with their connection, registration and business profile. */
export class Numbers extends Resource {
  /** Release a business account. Ends the subscription to the account's notifications at Meta, and deletes the account's token and all its numbers from the service. Events are kept. */
  releaseAccount(wabaId: string, options: RequestOptions = {}): Promise<Schemas["ReleasedAccount"]> {
    return this.json({ method: "DELETE", path: `/v1/accounts/${encodeURIComponent(wabaId)}` }, options);
  }

  /** List numbers. Returns all your numbers, each with its connection state. */
  list(query: Record<string, never> = {}, options: RequestOptions = {}): Pages<Schemas["PhoneNumber"]> {
    return this.pages({ method: "GET", path: "/v1/numbers", query }, options);
  }

  /** Get a number. Returns the number as the service has stored it. With `refresh=true`, the service first reads the number from Meta, and `meta_snapshot` has Meta's answer. */
  get(phoneNumberId: string, query: { refresh?: boolean | null } = {}, options: RequestOptions = {}): Promise<Schemas["RefreshedPhoneNumber"]> {
    return this.json({ method: "GET", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}`, query }, options);
  }

  /** Release a number. Removes the number from the service. Its events are kept. Releasing the last number of a business account also releases the account. */
  release(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["ReleasedNumber"]> {
    return this.json({ method: "DELETE", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}` }, options);
  }

  /** Get the progress of a number's app data. Returns the progress of importing contacts, and chats of the last six months, from the WhatsApp Business app. This concerns only a number that stays in that app. Data that was never requested is null. */
  getAppData(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["NumberAppData"]> {
    return this.json({ method: "GET", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/app-data` }, options);
  }

  /** Get a number's business profile. Returns the number's business profile, in Meta's own form. */
  getBusinessProfile(phoneNumberId: string, query: Record<string, never> = {}, options: RequestOptions = {}): Pages<Schemas["BusinessProfile"]> {
    return this.pages({ method: "GET", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/business-profile`, query }, options);
  }

  /** Change a number's business profile. Changes the number's business profile. The body and the answer have Meta's own form. */
  updateBusinessProfile(phoneNumberId: string, body: Schemas["BusinessProfile"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/business-profile`, body }, options);
  }

  /** Deregister a number. Deregisters the number at Meta. The number cannot send until it is registered again. */
  deregister(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/deregister` }, options);
  }

  /** Get a number's health. Asks Meta whether the number can send. The answer lists the objects on which sending depends, and why an object limits or blocks it. */
  getHealth(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["NumberHealth"]> {
    return this.json({ method: "GET", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/health` }, options);
  }

  /** Register a number. Registers the number with its six-digit PIN. Without `pin`, the service uses the stored PIN or makes a new one. Only this answer shows a new PIN, as `pin`. */
  register(phoneNumberId: string, body?: Schemas["RegisterRequest"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/register`, body }, options);
  }

  /** Request a verification code. Asks Meta to send a verification code to the number, by SMS or voice call. */
  requestVerificationCode(phoneNumberId: string, body: Schemas["RequestCodeRequest"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/request-code`, body }, options);
  }

  /** Repair a number's subscription. Subscribes to the notifications of the number's account again, and updates the connection state. */
  subscribe(phoneNumberId: string, options: RequestOptions = {}): Promise<Schemas["Connection"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/subscribe` }, options);
  }

  /** Set a number's two-step PIN. Sets the six-digit PIN of the number's two-step verification at Meta. The service stores the PIN encrypted for later registrations. */
  setTwoStepPin(phoneNumberId: string, body: Schemas["TwoStepRequest"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/two-step`, body }, options);
  }

  /** Verify a number with its code. Verifies the number with the code that Meta sent to it. */
  verify(phoneNumberId: string, body: Schemas["VerifyCodeRequest"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/numbers/${encodeURIComponent(phoneNumberId)}/verify-code`, body }, options);
  }

  /** Connect an account by token or code. Checks the token, subscribes to the account's notifications and imports its numbers. */
  connectAccount(body: Schemas["ConnectRequest"], options: RequestOptions = {}): Promise<Schemas["ConnectedAccount"]> {
    return this.json({ method: "POST", path: "/v1/numbers/connect", body }, options);
  }

  /** Finish an embedded sign-up. Exchanges the code for a token, subscribes to the account's notifications and registers the number. If the service makes a new PIN for the registration, only this answer shows it, as `pin`. */
  embeddedSignup(body: Schemas["EmbeddedSignupRequest"], options: RequestOptions = {}): Promise<Schemas["SignedUpNumber"]> {
    return this.json({ method: "POST", path: "/v1/numbers/embedded-signup", body }, options);
  }

  /** Move a number from another provider. Adds the number to the business account. Then verify the number and register it. */
  migrate(body: Schemas["MigrateRequest"], options: RequestOptions = {}): Promise<Schemas["NumberAtUpstream"]> {
    return this.json({ method: "POST", path: "/v1/numbers/migrate", body }, options);
  }
}

/** The log of the API calls of the last days that acted on your business. */
export class Requests extends Resource {
  /** List the calls of the last days. Returns every call that acted on the business, newest first. A call appears about a second after it ended. With filters, any page can hold fewer calls than `limit`, or none. Continue until `next_cursor` is null. */
  list(query: { error_code?: string | null; from?: string | Date | null; key_prefix?: string | null; limit?: number | null; method?: string | null; route?: string | null; status?: string | null; to?: string | Date | null } = {}, options: RequestOptions = {}): Pages<Schemas["Request"]> {
    return this.pages({ method: "GET", path: "/v1/requests", query }, options);
  }

  /** Get a call by the request id. Returns the call whose answer carried this `X-Service-Request-Id`. */
  get(requestId: string, options: RequestOptions = {}): Promise<Schemas["Request"]> {
    return this.json({ method: "GET", path: `/v1/requests/${encodeURIComponent(requestId)}` }, options);
  }
}

/** Acting as a customer or as WhatsApp in the sandbox. These operations need a test key. */
export class Sandbox extends Resource {
  /** Act on a call of the sandbox. Acts on a call as the customer: hangs up, or accepts or rejects a call that the business made. */
  actOnCall(body: Schemas["TestCallActionRequest"], options: RequestOptions = {}): Promise<Schemas["TestCall"]> {
    return this.json({ method: "POST", path: "/v1/test/call-actions", body }, options);
  }

  /** Let a customer call in the sandbox. Calls a number of the sandbox as one of its customers. The event of the call is the same as for a live call, with a sample SDP. Accept or reject the call with `POST /{phone_number_id}/calls`. A call that nobody accepts ends after a minute. */
  startCall(body: Schemas["TestCallRequest"], options: RequestOptions = {}): Promise<Schemas["TestCall"]> {
    return this.json({ method: "POST", path: "/v1/test/calls", body }, options);
  }

  /** Read the sandbox's messages. Returns the messages of one number of the sandbox in both directions, as the customers see them, newest first. */
  listConversations(query: { customer?: string | null; limit?: number | null; phone_number_id?: string | null } = {}, options: RequestOptions = {}): Pages<Schemas["TestMessage"]> {
    return this.pages({ method: "GET", path: "/v1/test/conversations", query }, options);
  }

  /** Let the business write in its app. Simulates a message that the business sends to a sandbox customer in the WhatsApp Business app. The number must be a sandbox number with `coexistence`. The event `message.echo` is the same as for a live number. */
  sendEcho(body: Schemas["TestEchoRequest"], options: RequestOptions = {}): Promise<Schemas["TestInbound"]> {
    return this.json({ method: "POST", path: "/v1/test/echoes", body }, options);
  }

  /** Let a customer write to the sandbox. Writes to a number of the sandbox as one of its customers. The events are the same as for live messages. `type` is any message type, whose object has WhatsApp's form. A text may be a plain string. Most other types have a default object. */
  sendInbound(body: Schemas["TestInboundRequest"], options: RequestOptions = {}): Promise<Schemas["TestInbound"]> {
    return this.json({ method: "POST", path: "/v1/test/inbound", body }, options);
  }

  /** Decide about a number of the sandbox. Makes a decision about a number as WhatsApp does: its quality and messaging limit, throughput, display name or PIN. The event is the same as for a live number. */
  decideNumber(body: Schemas["TestNumberEventRequest"], options: RequestOptions = {}): Promise<Schemas["TestNumberEvent"]> {
    return this.json({ method: "POST", path: "/v1/test/number-events", body }, options);
  }

  /** Add a number to the sandbox. Adds a further number, because the sandbox already has one. A number of the sandbox is connected at once and needs no endpoint. */
  createNumber(body?: Schemas["TestNumberRequest"], options: RequestOptions = {}): Promise<Schemas["PhoneNumber"]> {
    return this.json({ method: "POST", path: "/v1/test/numbers", body }, options);
  }

  /** Let a customer of the sandbox opt out. Stops or resumes marketing messages, as a customer does in WhatsApp's settings. The event `user.preferences` is the same as for a live number. Endpoints that name `customer.opt_out` also receive that event. */
  setPreference(body: Schemas["TestPreferenceRequest"], options: RequestOptions = {}): Promise<Schemas["TestPreference"]> {
    return this.json({ method: "POST", path: "/v1/test/preferences", body }, options);
  }

  /** List the magic recipients. Returns the recipients of the sandbox that have a special behaviour. The last four digits of a recipient's number determine the behaviour. */
  listRecipients(query: Record<string, never> = {}, options: RequestOptions = {}): Pages<Schemas["TestRecipient"]> {
    return this.pages({ method: "GET", path: "/v1/test/recipients", query }, options);
  }

  /** Set a message's status in the sandbox. Sets the status of a message that a number of the sandbox sent. The event, which is the same as for a live message, comes at once. The status may contradict earlier statuses, so that you can also test that case. */
  setStatus(body: Schemas["TestStatusRequest"], options: RequestOptions = {}): Promise<Schemas["TestStatus"]> {
    return this.json({ method: "POST", path: "/v1/test/statuses", body }, options);
  }

  /** Decide about a template of the sandbox. Makes a decision about a template as WhatsApp's review does. Send exactly one of `event` (with `reason`), `quality`, `category` and `correct_category`. The event is the same as for a live template. */
  decideTemplate(body: Schemas["TestTemplateRequest"], options: RequestOptions = {}): Promise<Schemas["TestTemplate"]> {
    return this.json({ method: "POST", path: "/v1/test/templates", body }, options);
  }

  /** List the magic texts. Returns texts with a special behaviour. When the last line of a message in the sandbox is such a text, it determines what happens to the message, or what the customer replies. */
  listTexts(query: Record<string, never> = {}, options: RequestOptions = {}): Pages<Schemas["TestText"]> {
    return this.pages({ method: "GET", path: "/v1/test/texts", query }, options);
  }
}

/** Message templates and their approval. */
export class Templates extends Resource {
  /** List message templates. Returns the templates from the service's copy, newest first. */
  list(query: { category?: string | null; from?: string | null; language?: string | null; name?: string | null; status?: string | null; waba_id?: string | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["Template"]> {
    return this.pages({ method: "GET", path: "/v1/templates", query }, options);
  }

  /** Submit a message template. Submits a template to WhatsApp for review. The body is WhatsApp's own. `waba_id` or `from`, in the query or in the body, chooses the business account and is not passed on to WhatsApp. */
  create(body: Schemas["MessageTemplate"], query: { from?: string | null; waba_id?: string | null } = {}, options: RequestOptions = {}): Promise<Schemas["SubmittedTemplate"]> {
    return this.json({ method: "POST", path: "/v1/templates", query, body }, options);
  }

  /** Get a message template. Returns the template as WhatsApp has it now. The path names it by WhatsApp's template id. */
  get(templateId: string, options: RequestOptions = {}): Promise<Schemas["Template"]> {
    return this.json({ method: "GET", path: `/v1/templates/${encodeURIComponent(templateId)}` }, options);
  }

  /** Edit a message template. Changes the template at WhatsApp, which then reviews it again. The body is WhatsApp's own. */
  edit(templateId: string, body: Schemas["TemplateEdit"], options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "POST", path: `/v1/templates/${encodeURIComponent(templateId)}`, body }, options);
  }

  /** Delete a message template. Deletes this language of the template. With `all_languages=true` it deletes all templates of the same name. */
  delete(templateId: string, query: { all_languages?: boolean | null } = {}, options: RequestOptions = {}): Promise<Schemas["UpstreamSuccess"]> {
    return this.json({ method: "DELETE", path: `/v1/templates/${encodeURIComponent(templateId)}`, query }, options);
  }

  /** Browse WhatsApp's template library. Returns the templates that WhatsApp offers, in WhatsApp's own form. */
  browseLibrary(query: { after?: string | null; before?: string | null; category?: string | null; from?: string | null; industry?: string | null; language?: string | null; limit?: string | null; name?: string | null; search?: string | null; topic?: string | null; usecase?: string | null; waba_id?: string | null } = {}, options: RequestOptions = {}): Promise<Schemas["TemplateLibrary"]> {
    return this.json({ method: "GET", path: "/v1/templates/library", query }, options);
  }

  /** Upload a header sample. Uploads an example file for the header of a template. Returns the handle that the template needs. */
  uploadSample(form: { file: FileInput; type?: string; waba_id?: string }, query: { from?: string | null } = {}, options: RequestOptions = {}): Promise<Schemas["SampleHandle"]> {
    return this.json({ method: "POST", path: "/v1/templates/media-handle", query, form }, options);
  }

  /** Re-read templates from WhatsApp. Updates the service's copy of the templates from one business account or from all. It also imports templates that were created elsewhere. */
  sync(query: { from?: string | null; waba_id?: string | null } = {}, options: RequestOptions = {}): Promise<Schemas["Sync"]> {
    return this.json({ method: "POST", path: "/v1/templates/sync", query }, options);
  }
}

/** The business that the key belongs to. */
export class Tenant extends Resource {
  /** Get the tenant. Returns the tenant with its checklist. Works in every status of the tenant. */
  get(options: RequestOptions = {}): Promise<Schemas["Tenant"]> {
    return this.json({ method: "GET", path: "/v1/tenant" }, options);
  }

  /** Change the tenant. Changes the name, the billing e-mail or the retention. */
  update(body?: Schemas["TenantChangeRequest"], options: RequestOptions = {}): Promise<Schemas["Tenant"]> {
    return this.json({ method: "PATCH", path: "/v1/tenant", body }, options);
  }
}

/** The businesses of a platform. These operations need a platform key. */
export class Tenants extends Resource {
  /** List the platform's own keys. Returns the keys of the caller's environment. Each key is shown by its prefix, never in full. */
  listPlatformKeys(query: { limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["ApiKey"]> {
    return this.pages({ method: "GET", path: "/v1/platform-keys", query }, options);
  }

  /** Revoke one of the platform's own keys. The key stops working at once, or within 10 seconds during an outage. */
  revokePlatformKey(keyId: string, options: RequestOptions = {}): Promise<Schemas["RevokedKey"]> {
    return this.json({ method: "DELETE", path: `/v1/platform-keys/${encodeURIComponent(keyId)}` }, options);
  }

  /** Rotate one of the platform's own keys. Makes a new key with the old key's scopes, numbers and expiry. The old key works for 24 more hours. */
  rotatePlatformKey(keyId: string, options: RequestOptions = {}): Promise<Schemas["RotatedKey"]> {
    return this.json({ method: "POST", path: `/v1/platform-keys/${encodeURIComponent(keyId)}/rotate` }, options);
  }

  /** List the tenants of the platform. Returns the tenants of the platform, newest first. With a live key, `external_ref` finds only live tenants. A test key sees only sandbox tenants. */
  list(query: { external_ref?: string | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["Tenant"]> {
    return this.pages({ method: "GET", path: "/v1/tenants", query }, options);
  }

  /** Create a tenant. The tenant is active at once. */
  create(body: Schemas["TenantCreateRequest"], options: RequestOptions = {}): Promise<Schemas["Tenant"]> {
    return this.json({ method: "POST", path: "/v1/tenants", body }, options);
  }

  /** Get a tenant of the platform. The answer is 404 for a tenant of another platform. */
  getById(tenantId: string, options: RequestOptions = {}): Promise<Schemas["Tenant"]> {
    return this.json({ method: "GET", path: `/v1/tenants/${encodeURIComponent(tenantId)}` }, options);
  }

  /** List the usage of the platform's tenants. Returns one entry for each business, the newest business first. An entry counts a day or a month in UTC. It counts the live environment, or the sandbox for a business that works only there. With a test key, only businesses that work only in the sandbox are returned. */
  listUsage(query: { day?: string | null; limit?: number | null; month?: string | null } = {}, options: RequestOptions = {}): Pages<Schemas["Usage"]> {
    return this.pages({ method: "GET", path: "/v1/usage", query }, options);
  }
}

/** Endpoints that receive events, with their deliveries and replays. */
export class Webhooks extends Resource {
  /** List webhook deliveries. Returns the deliveries, newest first. A delivery is one event on its way to one endpoint. A request searches at most 10,000 deliveries. When few match, a page can have fewer deliveries than `limit`, or none. Continue until `next_cursor` is null. */
  listDeliveries(query: { endpoint_id?: string | null; event_id?: string | null; event_type?: string | null; from?: string | Date | null; http_status?: number | null; status?: "dead" | "delivered" | "failed" | "pending" | null; to?: string | Date | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["Delivery"]> {
    return this.pages({ method: "GET", path: "/v1/webhook-deliveries", query }, options);
  }

  /** Get a webhook delivery. Returns the delivery with its last 20 attempts. */
  getDelivery(deliveryId: string, options: RequestOptions = {}): Promise<Schemas["DeliveryWithLog"]> {
    return this.json({ method: "GET", path: `/v1/webhook-deliveries/${encodeURIComponent(deliveryId)}` }, options);
  }

  /** Send a delivery again. Makes one attempt at once, signed with the current secrets. The answer shows the result. */
  replayDelivery(deliveryId: string, options: RequestOptions = {}): Promise<Schemas["Replayed"]> {
    return this.json({ method: "POST", path: `/v1/webhook-deliveries/${encodeURIComponent(deliveryId)}/replay` }, options);
  }

  /** List webhook endpoints. Returns the endpoints without their secrets. */
  list(query: { uid?: string | null; limit?: number | null } = {}, options: RequestOptions = {}): Pages<Schemas["Endpoint"]> {
    return this.pages({ method: "GET", path: "/v1/webhooks", query }, options);
  }

  /** Create a webhook endpoint. Sends the verify ping. Only this answer shows the secret. */
  create(body?: Schemas["EndpointRequest"], options: RequestOptions = {}): Promise<Schemas["CreatedEndpoint"]> {
    return this.json({ method: "POST", path: "/v1/webhooks", body }, options);
  }

  /** Get a webhook endpoint. Returns the endpoint's settings, state and health, without the secret. */
  get(endpointId: string, options: RequestOptions = {}): Promise<Schemas["EndpointWithHealth"]> {
    return this.json({ method: "GET", path: `/v1/webhooks/${encodeURIComponent(endpointId)}` }, options);
  }

  /** Change a webhook endpoint. A new url is verified by a ping before it is stored. */
  update(endpointId: string, body?: Schemas["EndpointChangeRequest"], options: RequestOptions = {}): Promise<Schemas["Endpoint"]> {
    return this.json({ method: "PATCH", path: `/v1/webhooks/${encodeURIComponent(endpointId)}`, body }, options);
  }

  /** Delete a webhook endpoint. Deliveries that still wait for the endpoint are never sent. */
  delete(endpointId: string, options: RequestOptions = {}): Promise<Schemas["Deleted"]> {
    return this.json({ method: "DELETE", path: `/v1/webhooks/${encodeURIComponent(endpointId)}` }, options);
  }

  /** Preview a filter by content. Evaluates a filter on the endpoint's recent events. Nothing is stored. */
  previewFilter(endpointId: string, body: Schemas["FilterPreviewRequest"], options: RequestOptions = {}): Promise<Schemas["FilterPreview"]> {
    return this.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(endpointId)}/preview-filter`, body }, options);
  }

  /** Replay deliveries to an endpoint. Queues new deliveries of the events of a time range. They are sent in the background, after new events. */
  replay(endpointId: string, body: Schemas["ReplayRequest"], options: RequestOptions = {}): Promise<Schemas["ReplayPreview"] | Schemas["Queued"]> {
    return this.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(endpointId)}/replay`, body }, options);
  }

  /** Resume a webhook endpoint. Closes the endpoint's circuit, ends a pause, and sends the waiting deliveries. */
  resume(endpointId: string, options: RequestOptions = {}): Promise<Schemas["EndpointWithHealth"]> {
    return this.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(endpointId)}/resume` }, options);
  }

  /** Rotate an endpoint's secret. Both secrets sign every delivery until the overlap ends. */
  rotateSecret(endpointId: string, body?: Schemas["RotateSecretRequest"], options: RequestOptions = {}): Promise<Schemas["RotatedSecret"]> {
    return this.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(endpointId)}/rotate-secret`, body }, options);
  }

  /** Send an example event to an endpoint. Sends the example of an event type, marked as a test. The event is neither stored nor counted. The answer contains the endpoint's answer. */
  test(endpointId: string, body: Schemas["ExampleRequest"], options: RequestOptions = {}): Promise<Schemas["Example"]> {
    return this.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(endpointId)}/test`, body }, options);
  }

  /** Verify a webhook endpoint. Sends the verify ping. A passed ping makes the endpoint active, unless it is paused. */
  verify(endpointId: string, options: RequestOptions = {}): Promise<Schemas["Verified"]> {
    return this.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(endpointId)}/verify` }, options);
  }
}

/** Every group of operations. */
export class Resources {
  readonly apiKeys: ApiKeys;
  readonly admin: Admin;
  readonly billing: Billing;
  readonly connectSessions: ConnectSessions;
  readonly consoleSessions: ConsoleSessions;
  readonly customerData: CustomerData;
  readonly deviceLogins: DeviceLogins;
  readonly events: Events;
  readonly flows: Flows;
  readonly health: Health;
  readonly ledger: Ledger;
  readonly media: Media;
  readonly messages: Messages;
  readonly numbers: Numbers;
  readonly requests: Requests;
  readonly sandbox: Sandbox;
  readonly templates: Templates;
  readonly tenant: Tenant;
  readonly tenants: Tenants;
  readonly webhooks: Webhooks;
  /** @deprecated It is `sandbox`. */
  readonly testWorld: Sandbox;

  constructor(transport: Transport) {
    this.apiKeys = new ApiKeys(transport);
    this.admin = new Admin(transport);
    this.billing = new Billing(transport);
    this.connectSessions = new ConnectSessions(transport);
    this.consoleSessions = new ConsoleSessions(transport);
    this.customerData = new CustomerData(transport);
    this.deviceLogins = new DeviceLogins(transport);
    this.events = new Events(transport);
    this.flows = new Flows(transport);
    this.health = new Health(transport);
    this.ledger = new Ledger(transport);
    this.media = new Media(transport);
    this.messages = new Messages(transport);
    this.numbers = new Numbers(transport);
    this.requests = new Requests(transport);
    this.sandbox = new Sandbox(transport);
    this.templates = new Templates(transport);
    this.tenant = new Tenant(transport);
    this.tenants = new Tenants(transport);
    this.webhooks = new Webhooks(transport);
    this.testWorld = this.sandbox;
  }
}
