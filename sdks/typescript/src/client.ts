// The client: every operation of the contract, and methods that combine operations.

import type { KeyedOptions, RequestOptions } from "./calls.js";
import { BatchDiffers, WhabuzzError } from "./errors.js";
import { Events as EventOperations, Media as MediaOperations, Messages as MessageOperations, Resources } from "./resources.js";
import type { Content, InboundEvent, OutgoingMessage, Schemas } from "./schemas.js";
import { EventStream, type ListenOptions } from "./stream.js";
import { sleep, Transport } from "./transport.js";

const MOST_OF_A_BATCH = 10_000;
/** The most bytes of the messages of a batch. The service accepts 32 MiB, with the members around the messages. */
const MOST_BYTES = 30 * 1024 * 1024;

export interface ClientOptions {
  apiKey: string;
  /** The service's URL without `/v1`. */
  baseUrl: string;
  /** The tenant to act on. Only for platform keys. */
  tenantId?: string;
  /** Milliseconds for one try, and a second more for every 64 KiB that it sends. The default is 30,000. */
  timeout?: number;
  /** How often a call is repeated if that is safe. The default is 4. */
  maxRetries?: number;
  fetch?: typeof fetch;
}

export interface ReplyOptions extends RequestOptions {
  /** Show the customer's message above the reply. */
  quote?: boolean;
  /** Several replies to one event each need another name. */
  name?: string;
}

export interface BatchOptions extends RequestOptions {
  from: string;
  /** Your name for the job. The same rows under the same name are sent only once. */
  clientRef: string;
  size?: number;
  /** Skip customers who opted out of marketing. */
  skipOptedOut?: boolean;
}

/** Single messages, replies and batches. */
export class Messages extends MessageOperations {
  /**
   * Answer a customer's message. An event that is delivered twice within 24 hours is answered once. Store each event's
   * `dedupe_key`, because retries and replays can come later.
   */
  reply(event: InboundEvent, content: Content, options: ReplyOptions = {}): Promise<Schemas["SentMessage"]> {
    const keyed: KeyedOptions = { ...options, idempotencyKey: replyKey(event, options.name) };
    return this.send(replyBody(event, content, options.quote), keyed);
  }

  /**
   * Send any number of messages, as batches of up to 10,000 and 30 MiB. Each row is a message without `from`. A repeated
   * call with the same rows sends nothing twice. Give each row a `message_ref`, your own name for the message. Then you
   * can send any rows again after an interruption, and each message is sent only once within 30 days. Throws
   * BatchDiffers.
   */
  async sendBatch(
    rows: Iterable<Schemas["BatchMessage"]> | AsyncIterable<Schemas["BatchMessage"]>,
    options: BatchOptions,
  ): Promise<Schemas["Batch"][]> {
    const batches: Schemas["Batch"][] = [];
    const seen = new Map<string, number>();
    let part: Schemas["BatchMessage"][] = [];
    let bytes = 0;
    const send = async () => {
      const name = `${options.clientRef}-${await digest([options.from, part])}`;
      const times = (seen.get(name) ?? 0) + 1; // Two equal batches of rows are both sent.
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
      bytes = 0;
    };
    for await (const row of rows) {
      const length = new TextEncoder().encode(JSON.stringify(row)).length + 1;
      if (part.length > 0 && bytes + length > MOST_BYTES) await send();
      part.push(row);
      bytes += length;
      if (part.length === (options.size ?? MOST_OF_A_BATCH)) await send();
    }
    if (part.length > 0) await send();
    return batches;
  }

  /** Wait until a batch is completed or cancelled, and return it. Throws an error after `milliseconds`. */
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

/** Files that you send, and files that customers send. */
export class Media extends MediaOperations {
  /** WhatsApp's description of a file: its type, size and hash. */
  describe(mediaId: string, options: RequestOptions = {}): Promise<Schemas["MediaDescription"]> {
    const path = `/v1/media/${encodeURIComponent(mediaId)}`;
    return this.json({ method: "GET", path, query: { meta: true } }, options);
  }
}

/** Stored events, and events as they happen. */
export class Events extends EventOperations {
  /** Receive events as they happen. The stream continues at `after`, the last `place` of an earlier stream. */
  listen(options: ListenOptions = {}): EventStream {
    return new EventStream(this.transport.settings, options);
  }
}

/** A client of the API with one key. */
export class Whabuzz extends Resources {
  override readonly messages: Messages;
  override readonly media: Media;
  override readonly events: Events;

  constructor(private readonly options: ClientOptions) {
    if (!options.apiKey || !options.baseUrl) throw new WhabuzzError("apiKey and baseUrl are needed.");
    // A key that was read from a file ends in a line break. `Headers` would reject such a key and quote it.
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

  /** A client for one tenant of a platform key. */
  forTenant(tenantId: string): Whabuzz {
    return new Whabuzz({ ...this.options, tenantId });
  }
}

/** A customer's choice. `id` is the id of the button or list row, or the payload of a template's quick reply. */
export interface Choice {
  id: string;
  title: string;
}

/** The customer's choice among buttons, list rows or a template's quick replies. Null for any other message. */
export function choiceOf(event: InboundEvent): Choice | null {
  const message = event.data.message;
  if (message.type === "button") return { id: message.button.payload ?? "", title: message.button.text ?? "" };
  if (message.type !== "interactive") return null;
  const chosen = message.interactive.button_reply ?? message.interactive.list_reply;
  return chosen ? { id: chosen.id, title: chosen.title ?? "" } : null;
}

/**
 * The message that replies to an inbound message. If the customer's phone number is unknown, the reply goes to the
 * business-scoped user id.
 */
export function replyBody(event: InboundEvent, content: Content, quote = false): OutgoingMessage {
  const message = event.data.message;
  const userId = message.from_user_id ?? event.user_id;
  // Without `+`, WhatsApp prepends the business's own country code to a full number of up to ten digits.
  const address = message.from ? { to: `+${message.from}` } : { recipient: userId };
  if (!message.from && !userId) throw new WhabuzzError("The event names no customer.");
  return {
    from: event.phone_number_id,
    ...address,
    ...(quote ? { context: { message_id: message.id } } : {}),
    ...(typeof content === "string" ? { type: "text", text: { body: content } } : content),
  } as OutgoingMessage;
}

/** The service's URL without `/v1`, which each path has. */
function addressOf(baseUrl: string): string {
  const address = baseUrl.trim().replace(/\/+$/, "").replace(/\/v1$/, "");
  if (!/^https?:\/\//.test(address)) throw new WhabuzzError(`The baseUrl ${baseUrl} does not begin with https://.`);
  return address;
}

/** A short hash of rows, for the `client_ref` of their batch. */
async function digest(value: unknown): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(value)));
  return Array.from(new Uint8Array(hash).slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function replyKey(event: InboundEvent, name?: string): string {
  return `reply:${event.id}${name ? `:${name}` : ""}`;
}
