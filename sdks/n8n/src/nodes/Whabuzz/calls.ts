// Calls of the gateway, and the signature of what it delivers (Standard Webhooks 1.0).

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

/** An error's body; the hint of a WhatsApp error stands beside it. */
interface ErrorBody {
  error?: { message?: string; hint?: string };
  hint?: string;
}

/** The answer of a call. Throws NodeApiError with the gateway's or WhatsApp's own words. */
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

/** Whether a delivery was signed with an endpoint's secret within the last five minutes. `body` is what arrived. */
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
  return false; // Also without a timestamp, which is NaN.
}
