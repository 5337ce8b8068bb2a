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

/** The API answered with an error. */
export class APIError extends WhabuzzError {
  /** `meta` when the upstream refused, otherwise the service's own name. */
  readonly source: string | undefined;
  /** One of the service's codes, or the upstream's number. */
  readonly code: ErrorCode | number | undefined;
  /** What to do. */
  readonly hint: string | undefined;
  readonly docUrl: string | undefined;
  readonly details: Record<string, unknown>;

  constructor(
    readonly status: number,
    readonly body: unknown,
    /** For questions to support. */
    readonly requestId: string | undefined,
  ) {
    const answer = isObject(body) ? body : {};
    const error = isObject(answer.error) ? answer.error : {};
    super([`${status} ${error.code}: ${error.message ?? "no message"}`, error.hint, requestId].filter(Boolean).join(" | "));
    this.source = answer.source as string | undefined;
    this.code = error.code as ErrorCode | number | undefined;
    this.hint = error.hint as string | undefined;
    this.docUrl = error.doc_url as string | undefined;
    const details = error.details ?? error.error_data;
    this.details = isObject(details) ? details : {};
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
