// Send calls with fetch and read their answers: JSON, pages of lists, and files as streams.

import {
  API_VERSION,
  type Call,
  contentOf,
  type KeyedOptions,
  queryOf,
  type RequestOptions,
  waitAfterAnswer,
  waitAfterFailure,
} from "./calls.js";
import { errorOf, NoAnswer, WhabuzzError } from "./errors.js";

/** The slowest line on which a long body arrives within the time-out. */
const SLOWEST_BYTES_PER_SECOND = 64 * 1024;

export interface Settings {
  baseUrl: string;
  headers: Record<string, string>;
  /** Milliseconds for one try, without those for sending a long body. */
  timeout: number;
  maxRetries: number;
  fetch: typeof fetch;
}

/** Sends calls with the credentials of one client. */
export class Transport {
  constructor(readonly settings: Settings) {}

  /**
   * Send a call, with retries, and return what `read` makes of the successful answer. A try ends after `read`, so the
   * time-out includes it. `late` aborts the try's connection. Throws APIError for an error answer, or NoAnswer.
   */
  async send<Result>(
    call: Call,
    options: KeyedOptions,
    read: (answer: Response, late: AbortController) => Result | Promise<Result>,
  ): Promise<Result> {
    const { baseUrl, headers, timeout, maxRetries } = this.settings;
    const fixed: Record<string, string> = {
      ...headers,
      Accept: call.accept ?? "application/json",
      "X-Service-Version": API_VERSION,
    };
    // Every retry has the same key.
    if (call.keyed) fixed["Idempotency-Key"] = keyOf(options);
    for (let tries = 1; ; tries++) {
      const content = contentOf(call);
      const late = new AbortController();
      // `fetch` does not report how much it has sent, so a long body has its time from the start.
      const sending = 1000 * Math.floor(content.size / SLOWEST_BYTES_PER_SECOND);
      const timer = setTimeout(() => late.abort(new Error("timed out")), (options.timeout ?? timeout) + sending);
      const stop = () => late.abort(options.signal?.reason);
      options.signal?.addEventListener("abort", stop, { once: true });
      let wait: number | undefined;
      try {
        options.signal?.throwIfAborted();
        const answer = await this.settings.fetch(baseUrl + call.path + queryOf(call), {
          method: call.method,
          headers: { ...fixed, ...content.headers },
          body: content.body ?? null,
          signal: late.signal,
          redirect: "manual", // Cloudflare Workers refuse "error". A redirect is an APIError here.
        });
        if (answer.ok) return await read(answer, late);
        const error = errorOf(answer.status, await jsonOf(answer), answer.headers);
        error.idempotencyKey = fixed["Idempotency-Key"];
        wait = waitAfterAnswer(call, tries, maxRetries, answer, error.code);
        if (wait === undefined) throw error;
      } catch (failure) {
        if (failure instanceof WhabuzzError) throw failure;
        options.signal?.throwIfAborted();
        wait = waitAfterFailure(call, tries, maxRetries);
        if (wait === undefined) {
          const error = new NoAnswer(`${call.method} ${baseUrl}${call.path}: ${reasonOf(failure)}`, { cause: failure });
          error.idempotencyKey = fixed["Idempotency-Key"];
          throw error;
        }
      } finally {
        clearTimeout(timer);
        options.signal?.removeEventListener("abort", stop);
      }
      await sleep(wait, options.signal);
    }
  }

  /** The JSON of a call's answer. Throws WhabuzzError if something else answered, such as a log-in page. */
  // biome-ignore lint: the callers declare the type of the JSON.
  json(call: Call, options: KeyedOptions): Promise<any> {
    return this.send(call, options, async (answer) => {
      const body = await answer.text();
      try {
        return JSON.parse(body);
      } catch {
        const what = `${call.method} ${this.settings.baseUrl}${call.path} answered ${answer.headers.get("content-type")}`;
        throw new WhabuzzError(`${what}, not JSON: is baseUrl the service's?`);
      }
    });
  }

  /** The file that a call answers, as a stream. */
  download(call: Call, options: KeyedOptions): Promise<Download> {
    return this.send(call, options, ({ body, headers }, late) => {
      const timeout = options.timeout ?? this.settings.timeout;
      const stream = body === null ? null : bytesOf(body, late, timeout, options.signal);
      return new Download(new Response(stream, { headers }));
    });
  }
}

/** The idempotency key of a call. Throws WhabuzzError for a key that the service, and the header, cannot take. */
function keyOf(options: KeyedOptions): string {
  const key = options.idempotencyKey ?? crypto.randomUUID();
  if (!/^[!-~]{1,255}$/.test(key)) throw new WhabuzzError("An idempotency key has 1 to 255 visible ASCII characters, and no blanks.");
  return key;
}

/**
 * The bytes of a file as they are read. Waiting for more bytes ends after `timeout` milliseconds, or with the signal.
 * The stream fails with NoAnswer, or with the signal's reason.
 */
function bytesOf(
  body: ReadableStream<Uint8Array>,
  late: AbortController,
  timeout: number,
  signal: AbortSignal | undefined,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      const stop = () => late.abort(signal?.reason);
      signal?.addEventListener("abort", stop, { once: true });
      try {
        if (signal?.aborted) stop();
        const { done, value } = await inTime(late, timeout, () => reader.read());
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (failure) {
        signal?.throwIfAborted();
        throw new NoAnswer(`The file was cut off: ${reasonOf(failure)}`, { cause: failure });
      } finally {
        signal?.removeEventListener("abort", stop);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** The result of a step. Without a result after `milliseconds`, the connection is aborted. */
export async function inTime<Result>(
  connection: AbortController,
  milliseconds: number,
  step: () => Promise<Result>,
): Promise<Result> {
  const timer = setTimeout(() => connection.abort(new Error("timed out")), milliseconds);
  try {
    return await step();
  } finally {
    clearTimeout(timer);
  }
}

/** The reason of a failure. Errors of fetch have it in their cause. */
function reasonOf(failure: unknown): string {
  const cause = failure instanceof Error ? (failure.cause as { message?: string; code?: string } | undefined) : undefined;
  const found = cause?.message || cause?.code;
  return found ? `${String(failure)}: ${found}` : String(failure);
}

/** The JSON of an answer, or its text if it is not JSON. */
export async function jsonOf(answer: Response): Promise<unknown> {
  const body = await answer.text();
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}

export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A group of operations. */
export class Resource {
  constructor(protected readonly transport: Transport) {}

  // biome-ignore lint: the generated methods declare the type of the JSON.
  protected json(call: Call, options: RequestOptions): Promise<any> {
    return this.transport.json(call, options);
  }

  protected async nothing(call: Call, options: RequestOptions): Promise<void> {
    await this.transport.send(call, options, (answer) => answer.arrayBuffer());
  }

  protected pages<Item>(call: Call, options: RequestOptions): Pages<Item> {
    return new Pages<Item>(this.transport, call, options);
  }

  protected download(call: Call, options: RequestOptions): Promise<Download> {
    return this.transport.download(call, options);
  }
}

/** A page of a list, with the cursor of the next page. The cursor of the last page is undefined. */
export interface Page<Item> {
  items: Item[];
  nextCursor: string | undefined;
}

/** A list that is read page by page while it is iterated. Creating it makes no call. */
export class Pages<Item> implements AsyncIterable<Item> {
  constructor(
    private readonly transport: Transport,
    private readonly call: Call,
    private readonly options: RequestOptions,
  ) {}

  async *[Symbol.asyncIterator](): AsyncIterator<Item> {
    for await (const page of this.pages()) yield* page;
  }

  /** Yields each page as an array of items. */
  async *pages(): AsyncGenerator<Item[]> {
    let cursor: string | undefined;
    do {
      const page = await this.page(cursor);
      yield page.items;
      cursor = page.nextCursor;
    } while (cursor);
  }

  /** Read one page with one call: the first page, or the page of a `nextCursor`. */
  async page(cursor?: string): Promise<Page<Item>> {
    const call = { ...this.call, query: { ...this.call.query, cursor } };
    const answer: { data: Item[]; next_cursor?: string | null } = await this.transport.json(call, this.options);
    return { items: answer.data, nextCursor: answer.next_cursor ?? undefined };
  }

  /** Read the items of the first page with one call. */
  async firstPage(): Promise<Item[]> {
    return (await this.page()).items;
  }
}

/** A file to download. Read it as a `stream`, or all of it with `bytes` or `blob`. */
export class Download {
  constructor(private readonly answer: Response) {}

  get contentType(): string | null {
    return this.answer.headers.get("content-type");
  }

  /** The size in bytes. Undefined if the service does not know the size. */
  get size(): number | undefined {
    const length = this.answer.headers.get("content-length");
    return length === null ? undefined : Number(length);
  }

  get stream(): ReadableStream<Uint8Array> {
    if (this.answer.body === null) throw new NoAnswer("The file has no bytes.");
    return this.answer.body as ReadableStream<Uint8Array>;
  }

  async bytes(): Promise<Uint8Array> {
    return new Uint8Array(await this.answer.arrayBuffer());
  }

  blob(): Promise<Blob> {
    return this.answer.blob();
  }
}
