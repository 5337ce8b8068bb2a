// Errors of the API and of the way to it.

import type { ErrorCode } from "./schemas.js";

/** Anything that this package throws. */
export class WhabuzzError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * No answer came, also after the repeats that are safe. Of a message with an idempotency key the outcome is unknown:
 * send it again with the same key, and it is sent once.
 */
export class NoAnswer extends WhabuzzError {}

/** A webhook was not signed with this secret, or too long ago. */
export class InvalidSignature extends WhabuzzError {}

/** The service ended the event stream for good. */
export class StreamEnded extends WhabuzzError {}

/** A `client_ref` belongs to a batch of other messages: those of this call were not sent. */
export class BatchDiffers extends WhabuzzError {}

/** The API answered with an error. */
export class APIError extends WhabuzzError {
  /** `meta` when WhatsApp refused, otherwise the service's own name. */
  readonly source: string | undefined;
  /** One of the service's codes, or WhatsApp's number. */
  readonly code: ErrorCode | number | undefined;
  /** What to do. */
  readonly hint: string | undefined;
  readonly docUrl: string | undefined;
  readonly details: Record<string, unknown>;
  /** For questions to support. */
  readonly requestId: string | undefined;
  /** Seconds after which the call may be made again, where the answer says so. */
  readonly retryAfter: number | undefined;

  constructor(
    readonly status: number,
    readonly body: unknown,
    readonly headers: Headers,
  ) {
    const answer = isObject(body) ? body : {};
    const error = isObject(answer.error) ? answer.error : {};
    // WhatsApp's errors have the service's words beside them, the service's own have theirs inside.
    const words = { ...answer, ...error };
    const found = error.details ?? error.error_data;
    const details = isObject(found) ? found : {};
    const requestId = headers.get("x-service-request-id") ?? undefined;
    const which = error.code === undefined ? status : `${status} ${error.code}`;
    const question = status < 500 ? " Is baseUrl right?" : "";
    const sentence = `${which}: ${error.message ?? `The answer is not the service's own.${question}`}`;
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

/** 400: the request fails validation; `details.fields` names each field. */
export class InvalidRequest extends APIError {}
/** 401. */
export class Unauthorized extends APIError {}
/** 403. */
export class Forbidden extends APIError {}
/** 404: unknown, or another business's. */
export class NotFound extends APIError {}
/** 409: the state of the object forbids it. */
export class Conflict extends APIError {}
/** 422: the idempotency key came with another body, or a webhook endpoint failed its ping. */
export class Unprocessable extends APIError {}
/** 429, also after the waits that the service asked for; `retryAfter` says how long to wait. */
export class RateLimited extends APIError {}
/** 5xx. Of a 502 `meta_unreachable` the outcome is unknown. */
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
