// Calls of the gateway, and the signature of its deliveries (Standard Webhooks 1.0).

import { createHmac, timingSafeEqual } from "node:crypto";

import {
  type IDataObject,
  type IExecuteFunctions,
  type IHookFunctions,
  type IHttpRequestOptions,
  type JsonObject,
  NodeApiError,
} from "n8n-workflow";

import { API_VERSION } from "./contract";

const TOLERANCE_SECONDS = 300;

/** The body of an error. For an error of WhatsApp, `hint` is beside `error`. */
interface ErrorBody {
  error?: { message?: string; hint?: string };
  hint?: string;
}

/** Makes a call and returns the answer. Throws NodeApiError with the text of the gateway's or WhatsApp's error. */
export async function call(
  from: IExecuteFunctions | IHookFunctions,
  method: IHttpRequestOptions["method"],
  path: string,
  { headers, ...options }: Partial<IHttpRequestOptions> = {},
): Promise<IDataObject> {
  const { baseUrl } = await from.getCredentials<{ baseUrl: string }>("whabuzzApi");
  try {
    const answer: unknown = await from.helpers.httpRequestWithAuthentication.call(from, "whabuzzApi", {
      method,
      url: baseUrl.replace(/\/+$/, "") + path,
      headers: { "X-Service-Version": API_VERSION, Accept: "application/json", ...headers },
      ...options,
    });
    return (typeof answer === "string" && answer !== "" ? JSON.parse(answer) : answer) as IDataObject;
  } catch (error) {
    const { status, data } = (error as { response?: { status?: number; data?: ErrorBody } }).response ?? {};
    const message = data?.error?.message;
    const hint = data?.error?.hint ?? data?.hint;
    throw new NodeApiError(from.getNode(), error as JsonObject, {
      ...(message === undefined ? {} : { message }),
      ...(hint === undefined ? {} : { description: hint }),
      ...(status === undefined ? {} : { httpCode: String(status) }),
    });
  }
}

/** Whether a delivery was signed with an endpoint's secret within the last five minutes. `body` is the raw body. */
export function isSigned(secret: string, headers: IDataObject, body: Buffer): boolean {
  const [id, timestamp, signatures] = ["id", "timestamp", "signature"].map((part) => String(headers[`webhook-${part}`]));
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) <= TOLERANCE_SECONDS) {
    const expected = createHmac("sha256", Buffer.from(secret.replace(/^whsec_/, ""), "base64"))
      .update(`${id}.${timestamp}.`)
      .update(body)
      .digest();
    return (signatures ?? "").split(" ").some((signature) => {
      const given = Buffer.from(signature.startsWith("v1,") ? signature.slice(3) : "", "base64");
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
  }
  return false; // A missing timestamp is NaN, and so also fails.
}
