// The client: every operation of the contract, and what is more than one operation.

import type { KeyedOptions, RequestOptions } from "./calls.js";
import { BatchDiffers, WhabuzzError } from "./errors.js";
import { Events as EventOperations, Media as MediaOperations, Messages as MessageOperations, Resources } from "./resources.js";
import type { Content, InboundEvent, OutgoingMessage, Schemas } from "./schemas.js";
import { EventStream, type ListenOptions } from "./stream.js";
import { sleep, Transport } from "./transport.js";

const MOST_OF_A_BATCH = 10_000;

export interface ClientOptions {
  apiKey: string;
  /** Where the service is, without `/v1`. */
  baseUrl: string;
  /** With a platform key: the tenant to act on. */
  tenantId?: string;
  /** Milliseconds for one try; 30,000 unless given. */
  timeout?: number;
  /** How often a call is repeated where that is safe; 4 unless given. */
  maxRetries?: number;
  fetch?: typeof fetch;
}

export interface ReplyOptions extends RequestOptions {
  /** Show the customer's message above the answer. */
  quote?: boolean;
  /** Several answers to one event need a name each. */
  name?: string;
}

export interface BatchOptions extends RequestOptions {
  from: string;
  /** The same rows under the same name are sent once, however often this is called; other rows are other batches. */
  clientRef: string;
  size?: number;
  /** Customers who want no marketing get none. */
  skipOptedOut?: boolean;
}

/** Single messages, answers and batches. */
export class Messages extends MessageOperations {
  /** Answer a customer's message. An event that is delivered twice is answered once. */
  reply(event: InboundEvent, content: Content, options: ReplyOptions = {}): Promise<Schemas["SentMessage"]> {
    const keyed: KeyedOptions = { ...options, idempotencyKey: replyKey(event, options.name) };
    return this.send(replyBody(event, content, options.quote), keyed);
  }

  /**
   * Send any number of messages, as batches of up to 10,000; rows are messages without `from`. A repeat with the same
   * rows sends nothing twice. Give each row a `message_ref`, your own name of the message: then a job that was
   * interrupted may send any rows again, and each message goes out once within 30 days. Throws BatchDiffers.
   */
  async sendBatch(
    rows: Iterable<Schemas["BatchMessage"]> | AsyncIterable<Schemas["BatchMessage"]>,
    options: BatchOptions,
  ): Promise<Schemas["Batch"][]> {
    const batches: Schemas["Batch"][] = [];
    const seen = new Map<string, number>();
    let part: Schemas["BatchMessage"][] = [];
    const send = async () => {
      const name = `${options.clientRef}-${await digest([options.from, part])}`;
      const times = (seen.get(name) ?? 0) + 1; // Rows that are meant twice are sent twice.
      seen.set(name, times);
      const clientRef = times > 1 ? `${name}-${times}` : name;
      const answer = await this.createBatch(
        {
          from: options.from,
          client_ref: clientRef,
          ...(options.skipOptedOut ? { skip_opted_out: true } : {}),
          messages: part,
        },
        options,
      );
      if ("same_messages" in answer && !answer.same_messages) {
        throw new BatchDiffers(
          `The client_ref ${clientRef} belongs to the batch ${answer.id} of other messages: nothing of this call was ` +
            "sent. Send it with another clientRef.",
        );
      }
      batches.push(answer);
      part = [];
    };
    for await (const row of rows) {
      part.push(row);
      if (part.length === (options.size ?? MOST_OF_A_BATCH)) await send();
    }
    if (part.length > 0) await send();
    return batches;
  }

  /** The batch once it is completed or cancelled. Throws when that takes longer than `milliseconds`. */
  async waitForBatch(batchId: string, milliseconds = 600_000, options: RequestOptions = {}): Promise<Schemas["Batch"]> {
    const deadline = Date.now() + milliseconds;
    for (;;) {
      const batch = await this.getBatch(batchId, options);
      if (batch.status === "completed" || batch.status === "cancelled") return batch;
      if (Date.now() > deadline) throw new WhabuzzError(`Batch ${batchId} is still ${batch.status}.`);
      await sleep(2000, options.signal);
    }
  }
}

/** Files for messages and from messages. */
export class Media extends MediaOperations {
  /** WhatsApp's description of a file: its type, size and hash. */
  describe(mediaId: string, options: RequestOptions = {}): Promise<Schemas["MediaDescription"]> {
    const path = `/v1/media/${encodeURIComponent(mediaId)}`;
    return this.json({ method: "GET", path, query: { meta: true } }, options);
  }
}

/** Stored events, and events as they happen. */
export class Events extends EventOperations {
  /** Receive events as they happen. With `after`, the `place` of an earlier stream, the stream continues there. */
  listen(options: ListenOptions = {}): EventStream {
    return new EventStream(this.transport.settings, options);
  }
}

/** The API with one key. */
export class Whabuzz extends Resources {
  override readonly messages: Messages;
  override readonly media: Media;
  override readonly events: Events;

  constructor(private readonly options: ClientOptions) {
    if (!options.apiKey || !options.baseUrl) throw new WhabuzzError("apiKey and baseUrl are needed.");
    // A key that was read from a file ends in a line break. The errors of headers quote their values.
    const apiKey = options.apiKey.trim();
    if (!/^[\x21-\x7e]+$/.test(apiKey)) throw new WhabuzzError("The apiKey is no key: it has characters that no key has.");
    const headers: Record<string, string> = { Authorization: `Bearer ${apiKey}` };
    if (options.tenantId) headers["X-Service-Tenant"] = options.tenantId;
    const transport = new Transport({
      baseUrl: addressOf(options.baseUrl),
      headers,
      timeout: options.timeout ?? 30_000,
      maxRetries: options.maxRetries ?? 4,
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    });
    super(transport);
    this.messages = new Messages(transport);
    this.media = new Media(transport);
    this.events = new Events(transport);
  }

  /** The same with a platform key acting on one tenant. */
  forTenant(tenantId: string): Whabuzz {
    return new Whabuzz({ ...this.options, tenantId });
  }
}

/** What a customer chose. `id` is that of the button or row, or the payload of a template's quick reply. */
export interface Choice {
  id: string;
  title: string;
}

/** The customer's choice in your buttons, your list or a template's quick replies; null for any other message. */
export function choiceOf(event: InboundEvent): Choice | null {
  const message = event.data.message;
  if (message.type === "button") return { id: message.button.payload ?? "", title: message.button.text ?? "" };
  if (message.type !== "interactive") return null;
  const chosen = message.interactive.button_reply ?? message.interactive.list_reply;
  return chosen ? { id: chosen.id, title: chosen.title ?? "" } : null;
}

/**
 * The message that answers an inbound one: from the number that was written to, to the number that wrote. A customer who
 * is known by username alone has no phone number; the answer goes to the business-scoped user id.
 */
export function replyBody(event: InboundEvent, content: Content, quote = false): OutgoingMessage {
  const message = event.data.message;
  const userId = message.from_user_id ?? event.user_id;
  const address = message.from ? { to: message.from } : { recipient: userId };
  if (!message.from && !userId) throw new WhabuzzError("The event names no customer.");
  return {
    from: event.phone_number_id,
    ...address,
    ...(quote ? { context: { message_id: message.id } } : {}),
    ...(typeof content === "string" ? { type: "text", text: { body: content } } : content),
  } as OutgoingMessage;
}

/** The service's address, without the `/v1` that each path has. */
function addressOf(baseUrl: string): string {
  const address = baseUrl.trim().replace(/\/+$/, "").replace(/\/v1$/, "");
  if (!/^https?:\/\//.test(address)) throw new WhabuzzError(`The baseUrl ${baseUrl} does not begin with https://.`);
  return address;
}

/** A short hash of rows: what makes the `client_ref` of their batch. */
async function digest(value: unknown): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(value)));
  return Array.from(new Uint8Array(hash).slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function replyKey(event: InboundEvent, name?: string): string {
  return `reply:${event.id}${name ? `:${name}` : ""}`;
}
