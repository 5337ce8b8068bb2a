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
import { APIError, errorOf, NoAnswer } from "./errors.js";

export interface Settings {
  baseUrl: string;
  headers: Record<string, string>;
  /** Milliseconds for one try. */
  timeout: number;
  maxRetries: number;
  fetch: typeof fetch;
}

/** Sends calls with the credentials of one client. */
export class Transport {
  constructor(readonly settings: Settings) {}

  /** Send a call, with retries, and return the successful answer. Throws APIError for an error answer, or NoAnswer. */
  async send(call: Call, options: KeyedOptions): Promise<Response> {
    const { baseUrl, headers, timeout, maxRetries } = this.settings;
    const fixed: Record<string, string> = {
      ...headers,
      Accept: call.accept ?? "application/json",
      "X-Service-Version": API_VERSION,
    };
    // Every retry has the same key.
    if (call.keyed) fixed["Idempotency-Key"] = options.idempotencyKey ?? crypto.randomUUID();
    for (let tries = 1; ; tries++) {
      const content = contentOf(call);
      const late = new AbortController();
      const timer = setTimeout(() => late.abort(new Error("timed out")), options.timeout ?? timeout);
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
          redirect: "error",
        });
        if (answer.ok) return answer;
        const error = errorOf(answer.status, await jsonOf(answer), answer.headers);
        wait = waitAfterAnswer(call, tries, maxRetries, answer, error.code);
        if (wait === undefined) throw error;
      } catch (failure) {
        if (failure instanceof APIError) throw failure;
        options.signal?.throwIfAborted();
        wait = waitAfterFailure(call, tries, maxRetries);
        if (wait === undefined) {
          throw new NoAnswer(`${call.method} ${baseUrl}${call.path}: ${reasonOf(failure)}`, { cause: failure });
        }
      } finally {
        clearTimeout(timer);
        options.signal?.removeEventListener("abort", stop);
      }
      await sleep(wait, options.signal);
    }
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
  protected async json(call: Call, options: RequestOptions): Promise<any> {
    return (await this.transport.send(call, options)).json();
  }

  protected async nothing(call: Call, options: RequestOptions): Promise<void> {
    await (await this.transport.send(call, options)).arrayBuffer();
  }

  protected pages<Item>(call: Call, options: RequestOptions): Pages<Item> {
    return new Pages<Item>(this.transport, call, options);
  }

  protected async download(call: Call, options: RequestOptions): Promise<Download> {
    return new Download(await this.transport.send(call, options));
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
    const answer = (await (await this.transport.send(call, this.options)).json()) as {
      data: Item[];
      next_cursor?: string | null;
    };
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
