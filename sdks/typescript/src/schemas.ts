// The schemas of the API under short names.

import type { components } from "./contract.js";

/** Every schema by its name: `Schemas["OutgoingMessage"]`. */
export type Schemas = components["schemas"];
/** A message to send; `type` says which. */
export type OutgoingMessage = Schemas["OutgoingMessage"];
/** An event as it is delivered; `type` says what `data` holds. */
export type Event = Schemas["Event"];
export type EventType = Schemas["EventType"];
export type ErrorCode = Schemas["ErrorCode"];
export type InboundEvent = Schemas["MessageInboundEvent"];
/** A message without its address, or a text. */
export type Content = string | Record<string, unknown>;
