// Calls of the API: their content and their retries.
//
// Only calls whose repetition is safe are repeated: reads, calls that the service recognises by their idempotency key or
// `client_ref` (it answers a repeat with the first outcome), and calls that were certainly not carried out.

/** The version of the API for which this package was made. Every call pins this version. */
export const API_VERSION = "2026-10-16";

/** A file to upload. A `File` has a name. For a `Blob`, give the name. */
export type FileInput = Blob | { name: string; content: Blob };

export interface RequestOptions {
  /** Aborts the call, also while it waits for a retry or reads the answer. */
  signal?: AbortSignal;
  /**
   * Milliseconds for one try, and for each part of a download. The default is the client's time-out. A try has a second
   * more for every 64 KiB that it sends.
   */
  timeout?: number;
}

export interface KeyedOptions extends RequestOptions {
  /** 1 to 255 visible ASCII characters. The service stores the key for 24 hours. The default is a random key. */
  idempotencyKey?: string;
}

export interface Call {
  method: string;
  path: string;
  query?: Record<string, unknown>;
  body?: unknown;
  form?: Record<string, unknown>;
  /** Whether the call takes an idempotency key. */
  keyed?: boolean;
  accept?: string;
}

const LONGEST_WAIT = 60_000;

/** The milliseconds to wait before the next try after an answer. Undefined when the answer is final. */
export function waitAfterAnswer(call: Call, tries: number, most: number, answer: Response, code: unknown): number | undefined {
  if (tries > most) return undefined;
  const asked = seconds(answer.headers.get("retry-after"));
  // A 429 refuses a call before it is carried out. A 503 may come after the database has stored a change.
  if (answer.status === 429 || (answer.status === 503 && asked !== undefined && mayRepeat(call))) {
    const wait = asked ?? backoff(tries);
    return wait <= LONGEST_WAIT ? wait : undefined;
  }
  if (!mayRepeat(call)) return undefined;
  if (answer.status === 409 && code === "idempotency_conflict") return backoff(tries); // An earlier try is still running.
  const final = answer.headers.get("idempotent-replayed") === "true";
  return [500, 502, 504].includes(answer.status) && !final ? backoff(tries) : undefined;
}

/** The milliseconds to wait if no answer came. `fetch` does not report whether the request was sent. */
export function waitAfterFailure(call: Call, tries: number, most: number): number | undefined {
  return tries > most || !mayRepeat(call) ? undefined : backoff(tries);
}

function mayRepeat(call: Call): boolean {
  const isNamedBatch = call.path === "/v1/messages/batch" && !!(call.body as { client_ref?: unknown } | undefined)?.client_ref;
  return call.method === "GET" || call.keyed === true || isNamedBatch;
}

/** Milliseconds: half a second, doubled each time up to eight seconds, with jitter. */
function backoff(tries: number): number {
  return Math.min(8000, 500 * 2 ** (tries - 1)) * (0.5 + Math.random() / 2);
}

function seconds(value: string | null): number | undefined {
  const found = value === null || value === "" ? NaN : Number(value);
  return Number.isFinite(found) && found >= 0 ? found * 1000 : undefined;
}

/** The query string. Values that are undefined or null are left out. An array becomes one parameter for each item. */
export function queryOf(call: Call): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(call.query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null) parameters.append(name, text(each));
    }
  }
  const query = parameters.toString();
  return query === "" ? "" : `?${query}`;
}

/** The body, its content type, and about how many bytes it has. */
export function contentOf(call: Call): { body?: BodyInit; headers: Record<string, string>; size: number } {
  if (call.form !== undefined) {
    const form = new FormData();
    let size = 0;
    for (const [name, value] of Object.entries(call.form)) {
      if (value === undefined || value === null) continue;
      size += isNamedFile(value) ? value.content.size : value instanceof Blob ? value.size : 0;
      if (value instanceof Blob) form.append(name, value, (value as Partial<File>).name ?? "file");
      else if (isNamedFile(value)) form.append(name, value.content, value.name);
      else form.append(name, text(value));
    }
    return { body: form, headers: {}, size };
  }
  if (call.body === undefined) return { headers: {}, size: 0 };
  const body = JSON.stringify(call.body);
  return { body, headers: { "Content-Type": "application/json" }, size: new TextEncoder().encode(body).length };
}

function isNamedFile(value: unknown): value is { name: string; content: Blob } {
  return typeof value === "object" && value !== null && (value as { content?: unknown }).content instanceof Blob;
}

function text(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value);
}
