// Webhooks: the signature of a delivery (Standard Webhooks 1.0) and the typed event in it. Needs only WebCrypto.

import { InvalidSignature, WhabuzzError } from "./errors.js";
import type { Event, Schemas } from "./schemas.js";

const TOLERANCE_SECONDS = 300;
const encoder = new TextEncoder();

/** Headers as a `Headers` object, or as an object of Node. */
export type HeadersLike = Headers | Record<string, string | string[] | undefined>;

export interface VerifierOptions {
  /**
   * The highest age of a delivery in seconds; the default is 300. Null accepts any age, for messages of a queue and
   * objects of an archive. A recorded delivery is then valid for ever, so drop repeats by `dedupe_key`.
   */
  toleranceSeconds?: number | null;
}

/** Verifies deliveries with the secret of an endpoint, or with several secrets during a rotation. */
export class WebhookVerifier {
  private readonly secrets: string[];
  private keys: Promise<CryptoKey[]> | undefined;

  constructor(
    secret: string | string[],
    private readonly options: VerifierOptions = {},
  ) {
    this.secrets = Array.isArray(secret) ? secret : [secret];
    if (this.secrets.length === 0 || this.secrets.some((each) => !each)) throw new WhabuzzError("At least one secret (whsec_…) is needed.");
  }

  /**
   * The event of a delivery, or a ping. Answer a ping with its `challenge`. Throws InvalidSignature.
   *
   * `body` must be the raw body.
   */
  async verify(body: string | Uint8Array | ArrayBuffer, headers: HeadersLike): Promise<Event | Schemas["VerifyPing"]> {
    return parsed(await this.verified(body, headers));
  }

  /**
   * The events of a delivery that can have several events, or an array with the ping.
   *
   * Throws InvalidSignature.
   */
  async verifyAll(body: string | Uint8Array | ArrayBuffer, headers: HeadersLike): Promise<Event[] | [Schemas["VerifyPing"]]> {
    const verified = (await this.verify(body, headers)) as { type: string };
    if (verified.type === "events") return (verified as unknown as { events: Event[] }).events;
    return [verified] as Event[] | [Schemas["VerifyPing"]];
  }

  /**
   * The events of an object in an archive, which has one in each line, or an array with the ping.
   *
   * Throws InvalidSignature.
   */
  async verifyLines(body: string | Uint8Array | ArrayBuffer, headers: HeadersLike): Promise<Event[] | [Schemas["VerifyPing"]]> {
    const text = await this.verified(body, headers);
    return text.split("\n").filter(Boolean).map(parsed);
  }

  /** The text of a body with a valid signature. Throws InvalidSignature. */
  private async verified(body: string | Uint8Array | ArrayBuffer, headers: HeadersLike): Promise<string> {
    if (typeof body !== "string" && body?.byteLength === undefined) {
      throw new WhabuzzError("Give verify the body as it arrived, before any parsing.");
    }
    const raw = typeof body === "string" ? encoder.encode(body) : new Uint8Array(body);
    const id = header(headers, "webhook-id");
    const timestamp = header(headers, "webhook-timestamp");
    const signatures = header(headers, "webhook-signature");
    if (!id || !/^\d+$/.test(timestamp) || !signatures) {
      throw new InvalidSignature("The headers webhook-id, -timestamp and -signature are missing.");
    }
    const { toleranceSeconds = TOLERANCE_SECONDS } = this.options;
    if (toleranceSeconds !== null && Math.abs(Date.now() / 1000 - Number(timestamp)) > toleranceSeconds) {
      throw new InvalidSignature("The delivery was signed too long ago, or the clock is wrong.");
    }
    const prefix = encoder.encode(`${id}.${timestamp}.`);
    const signed = new Uint8Array(prefix.length + raw.length);
    signed.set(prefix);
    signed.set(raw, prefix.length);
    this.keys ??= Promise.all(this.secrets.map(keyOf));
    for (const key of await this.keys) {
      for (const given of signatures.split(" ")) {
        const signature = given.startsWith("v1,") ? bytesOf(given.slice(3)) : undefined;
        // crypto.subtle compares in constant time.
        if (signature !== undefined && (await crypto.subtle.verify("HMAC", key, signature, signed))) return textOf(raw);
      }
    }
    throw new InvalidSignature(
      "No signature matches. Is the secret the endpoint's, and the body as it arrived, before any parsing?",
    );
  }
}

function textOf(raw: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    throw new InvalidSignature("The body is not UTF-8.");
  }
}

function parsed(text: string): Event {
  try {
    return JSON.parse(text) as Event;
  } catch {
    throw new InvalidSignature("The body is not JSON.");
  }
}

function header(headers: HeadersLike, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  const entry = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return (Array.isArray(entry) ? entry[0] : entry) ?? "";
}

function keyOf(secret: string): Promise<CryptoKey> {
  const bytes = bytesOf(secret.replace(/^whsec_/, ""));
  if (bytes === undefined || bytes.length === 0) throw new WhabuzzError("A secret must be whsec_ and base64.");
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}
