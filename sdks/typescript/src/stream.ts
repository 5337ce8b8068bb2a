// The event stream: server-sent events. After a broken connection, the stream continues after the last handled event.

import { API_VERSION, queryOf } from "./calls.js";
import { APIError, errorOf, StreamEnded } from "./errors.js";
import type { Event } from "./schemas.js";
import { inTime, jsonOf, type Settings, sleep } from "./transport.js";

const ENDINGS: Record<string, string> = {
  replaced: "Another program listens with this key now, and one key has one stream.",
  unauthorized: "The key or the business is no longer active.",
  failed: "The place or the next event cannot be read: read the events at /v1/events.",
};
/** Milliseconds of silence after which a connection counts as broken. The service sends a comment every 15 seconds. */
const SILENCE = 45_000;
const LONGEST_PAUSE = 30_000;

export interface ListenOptions {
  /** Event types, separated by commas. The default is all types. */
  type?: string | undefined;
  /** Only the events of this number. */
  phoneNumberId?: string | undefined;
  /** The `place` of an earlier stream, after which the stream continues. Without `after`, the stream begins now. */
  after?: string | undefined;
  /** Ends the stream, which then throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** An event with its place in the stream. */
export interface Streamed {
  place: string;
  event: Event;
}

/**
 * Events as they happen: `for await (const { event, place } of client.events.listen())`. A broken connection loses no
 * events. `place` is the position after the last handled event. Store it, and pass it as `after` to go on from there.
 */
export class EventStream implements AsyncIterable<Streamed> {
  place: string | undefined;
  private pause = 1000;
  private failures = 0;

  constructor(
    private readonly settings: Settings,
    private readonly options: ListenOptions,
  ) {
    this.place = options.after;
  }

  /** Yields every event once. Throws StreamEnded if the service ended the stream for good, and APIError. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Streamed> {
    const { signal } = this.options;
    for (;;) {
      let wait = this.pause;
      try {
        yield* this.connection();
        wait = this.pause;
      } catch (failure) {
        signal?.throwIfAborted();
        const isFinal = failure instanceof APIError && failure.status !== 429 && failure.status < 500;
        if (isFinal || failure instanceof StreamEnded) throw failure;
        wait = Math.min(LONGEST_PAUSE, this.pause * 2 ** Math.min(this.failures++, 5));
        if (failure instanceof APIError) wait = Math.max(wait, 1000 * (failure.retryAfter ?? 0));
      }
      await sleep(wait, signal);
    }
  }

  private async *connection(): AsyncGenerator<Streamed> {
    const { signal, type, phoneNumberId } = this.options;
    const stopped = new AbortController();
    const stop = () => stopped.abort(signal?.reason);
    signal?.throwIfAborted();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const query = queryOf({ method: "GET", path: "", query: { type, phone_number_id: phoneNumberId } });
      const answer = await inTime(stopped, this.settings.timeout, () =>
        this.settings.fetch(`${this.settings.baseUrl}/v1/events/stream${query}`, {
          headers: {
            ...this.settings.headers,
            Accept: "text/event-stream",
            "X-Service-Version": API_VERSION,
            ...(this.place ? { "Last-Event-ID": this.place } : {}),
          },
          signal: stopped.signal,
          redirect: "manual",
        }),
      );
      if (!answer.ok) {
        const body = await inTime(stopped, this.settings.timeout, () => jsonOf(answer));
        throw errorOf(answer.status, body, answer.headers);
      }
      if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) {
        throw new StreamEnded("This is not an event stream: is baseUrl the service's?");
      }
      for await (const sent of fieldsOf(answer, stopped)) {
        this.failures = 0;
        if (sent.retry) this.pause = Number(sent.retry) || this.pause;
        if (sent.event === "closed") {
          const ending = ENDINGS[sent.data ?? ""];
          if (ending !== undefined) throw new StreamEnded(ending);
          return;
        }
        if (sent.data) yield { place: sent.id ?? "", event: JSON.parse(sent.data) as Event };
        // `place` is set after the caller has handled the event, so an unhandled event comes again.
        this.place = sent.id || this.place;
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      stopped.abort();
    }
  }
}

interface Fields {
  id?: string;
  event?: string;
  data?: string;
  retry?: string;
}

/** The events of an answer as their fields. Lines of `data` are joined, and comments are left out. */
async function* fieldsOf(answer: Response, stopped: AbortController): AsyncGenerator<Fields> {
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let fields: Fields = {};
  for (;;) {
    const { done, value } = await inTime(stopped, SILENCE, () => reader.read());
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.map((each) => each.replace(/\r$/, ""))) {
      const [, name, text = ""] = /^(\w+): ?(.*)$/s.exec(line) ?? [];
      if (line === "") {
        yield fields;
        fields = {};
      } else if (name === "data") {
        fields.data = fields.data === undefined ? text : `${fields.data}\n${text}`;
      } else if (name === "id" || name === "event" || name === "retry") {
        fields[name] = text;
      }
    }
  }
}
