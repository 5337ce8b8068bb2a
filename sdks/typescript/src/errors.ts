// Errors in the API's answers, and calls without an answer.

import type { ErrorCode } from "./schemas.js";

/** The base class of all errors of this package. */
export class WhabuzzError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * No answer came, even after all safe retries. The outcome is unknown. Send a message again with the same key,
 * `idempotencyKey`: it is sent only once.
 */
export class NoAnswer extends WhabuzzError {
  /** The idempotency key of the call: yours, or a random one. */
  idempotencyKey: string | undefined;
}

/** A webhook was not signed with this secret, or its signature is too old. */
export class InvalidSignature extends WhabuzzError {}

/** The service ended the event stream for good. */
export class StreamEnded extends WhabuzzError {}

/** The `client_ref` already belongs to a batch of other messages. The messages of this call were not sent. */
export class BatchDiffers extends WhabuzzError {}

/** The API answered with an error. */
export class APIError extends WhabuzzError {
  /** `meta` for an error of WhatsApp, otherwise the service's own name. */
  readonly source: string | undefined;
  /** A code of the service, or WhatsApp's numeric code. */
  readonly code: ErrorCode | number | undefined;
  /** What to do about the error. */
  readonly hint: string | undefined;
  readonly docUrl: string | undefined;
  readonly details: Record<string, unknown>;
  /** The id of the request, for questions to support. */
  readonly requestId: string | undefined;
  /** The idempotency key of the call: yours, or a random one. */
  idempotencyKey: string | undefined;
  /** The seconds after which the call may be repeated, if the answer has them. */
  readonly retryAfter: number | undefined;

  constructor(
    readonly status: number,
    readonly body: unknown,
    readonly headers: Headers,
  ) {
    const answer = isObject(body) ? body : {};
    const error = isObject(answer.error) ? answer.error : {};
    // `hint` and `doc_url` are inside an error of the service. For an error of WhatsApp, they are beside `error`.
    const words = { ...answer, ...error };
    const found = error.details ?? error.error_data;
    const details = isObject(found) ? found : {};
    const requestId = headers.get("x-service-request-id") ?? undefined;
    const which = error.code === undefined ? status : `${status} ${error.code}`;
    const question = status < 500 ? " Is baseUrl right?" : "";
    const location = headers.get("location");
    const elsewhere = location ? ` It redirects to ${location}` : "";
    const sentence = `${which}: ${error.message ?? `The answer is not the service's own.${question}${elsewhere}`}`;
    super([sentence, details.details, words.hint, requestId].filter(Boolean).join(" | "));
    this.source = answer.source as string | undefined;
    this.code = error.code as ErrorCode | number | undefined;
    this.hint = words.hint as string | undefined;
    this.docUrl = words.doc_url as string | undefined;
    this.details = details;
    this.requestId = requestId;
    const asked = Number(headers.get("retry-after") ?? NaN);
    this.retryAfter = Number.isNaN(asked) ? undefined : asked;
  }
}

/** 400: the request is not valid. `details.fields` names each invalid field. */
export class InvalidRequest extends APIError {}
/** 401: the key is missing, unknown or no longer valid. */
export class Unauthorized extends APIError {}
/** 403: the key may not do this. */
export class Forbidden extends APIError {}
/** 404: the object does not exist, or belongs to another business. */
export class NotFound extends APIError {}
/** 409: the state of the object forbids the call. */
export class Conflict extends APIError {}
/** 422: the idempotency key was used with another body before, or a webhook endpoint failed its ping. */
export class Unprocessable extends APIError {}
/** 429: too many calls, also after the retries. `retryAfter` says how long to wait. */
export class RateLimited extends APIError {}
/**
 * 5xx: an error of the service. After a 502 `meta_unreachable` the outcome of the call is unknown. After a 503 a message
 * was not sent, but another change may have been made.
 */
export class ServerError extends APIError {}

const BY_STATUS: Record<number, typeof APIError> = {
  400: InvalidRequest,
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  422: Unprocessable,
  429: RateLimited,
};

/** The error for an answer. */
export function errorOf(status: number, body: unknown, headers: Headers): APIError {
  const kind = BY_STATUS[status] ?? (status >= 500 ? ServerError : APIError);
  return new kind(status, body, headers);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
