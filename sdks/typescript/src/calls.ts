// A call of the API apart from how it is sent, and when it may be repeated.
//
// A call is repeated only where that cannot do anything twice: reads, calls with an idempotency key (the service answers
// a repeat with the first outcome), and what the service says it did not do.

/** The version of the API that this package was made for; every call pins it. */
export const API_VERSION = "2026-10-16";

/** A file to upload. A `File` brings its name; of a `Blob`, say it. */
export type FileInput = Blob | { name: string; content: Blob };

export interface RequestOptions {
  /** Ends the call, its waits included. */
  signal?: AbortSignal;
  /** Milliseconds for one try, instead of the client's. */
  timeout?: number;
}

export interface KeyedOptions extends RequestOptions {
  /** 1 to 255 visible ASCII characters, remembered for 24 hours; a random one unless given. */
  idempotencyKey?: string;
}

export interface Call {
  method: string;
  path: string;
  query?: Record<string, unknown>;
  body?: unknown;
  form?: Record<string, unknown>;
  /** Takes an idempotency key. */
  keyed?: boolean;
  accept?: string;
}

const LONGEST_WAIT = 60_000;

/** Milliseconds to wait before the next try after an answer; undefined when the answer is final. */
export function waitAfterAnswer(call: Call, tries: number, most: number, answer: Response, code: unknown): number | undefined {
  if (tries > most) return undefined;
  const asked = seconds(answer.headers.get("retry-after"));
  if (answer.status === 429 || (answer.status === 503 && asked !== undefined)) {
    // Neither was done: the service says so with Retry-After.
    const wait = asked ?? backoff(tries);
    return wait <= LONGEST_WAIT ? wait : undefined;
  }
  if (!mayRepeat(call)) return undefined;
  if (answer.status === 409 && code === "idempotency_conflict") return backoff(tries); // An earlier try still runs.
  const final = answer.headers.get("idempotent-replayed") === "true";
  return [500, 502, 504].includes(answer.status) && !final ? backoff(tries) : undefined;
}

/** The same when no answer came: fetch does not tell whether the request had left. */
export function waitAfterFailure(call: Call, tries: number, most: number): number | undefined {
  return tries > most || !mayRepeat(call) ? undefined : backoff(tries);
}

function mayRepeat(call: Call): boolean {
  return call.method === "GET" || call.keyed === true;
}

/** Half a second, doubling to eight, with jitter. */
function backoff(tries: number): number {
  return Math.min(8000, 500 * 2 ** (tries - 1)) * (0.5 + Math.random() / 2);
}

function seconds(value: string | null): number | undefined {
  const found = value === null || value === "" ? NaN : Number(value);
  return Number.isFinite(found) && found >= 0 ? found * 1000 : undefined;
}

/** The query as the service reads it: what is undefined or null is left out, arrays are repeated. */
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

/** The body and its content type. */
export function contentOf(call: Call): { body?: BodyInit; headers: Record<string, string> } {
  if (call.form !== undefined) {
    const form = new FormData();
    for (const [name, value] of Object.entries(call.form)) {
      if (value === undefined || value === null) continue;
      if (value instanceof Blob) form.append(name, value, (value as Partial<File>).name ?? "file");
      else if (isNamedFile(value)) form.append(name, value.content, value.name);
      else form.append(name, text(value));
    }
    return { body: form, headers: {} };
  }
  if (call.body === undefined) return { headers: {} };
  return { body: JSON.stringify(call.body), headers: { "Content-Type": "application/json" } };
}

function isNamedFile(value: unknown): value is { name: string; content: Blob } {
  return typeof value === "object" && value !== null && (value as { content?: unknown }).content instanceof Blob;
}

function text(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value);
}
