// Client of the messaging gateway: send WhatsApp messages, read events, verify webhooks. It needs only fetch, WebCrypto
// and web streams, so it runs on Node 20 and newer and on edge runtimes.

export { API_VERSION, type FileInput, type KeyedOptions, type RequestOptions } from "./calls.js";
export { type BatchOptions, type Choice, choiceOf, type ClientOptions, replyBody, type ReplyOptions, Whabuzz } from "./client.js";
export {
  APIError,
  BatchDiffers,
  Conflict,
  Forbidden,
  InvalidRequest,
  InvalidSignature,
  NoAnswer,
  NotFound,
  RateLimited,
  ServerError,
  StreamEnded,
  Unauthorized,
  Unprocessable,
  WhabuzzError,
} from "./errors.js";
export type { Content, ErrorCode, Event, EventType, InboundEvent, OutgoingMessage, Schemas } from "./schemas.js";
export { EventStream, type ListenOptions, type Streamed } from "./stream.js";
export { Download, type Page, Pages } from "./transport.js";
export { type HeadersLike, type VerifierOptions, WebhookVerifier } from "./webhooks.js";
