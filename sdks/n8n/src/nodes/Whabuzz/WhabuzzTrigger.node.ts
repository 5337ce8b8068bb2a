import { createHmac } from "node:crypto";
import { isDeepStrictEqual } from "node:util";

import {
  type IDataObject,
  type IHookFunctions,
  type INodeType,
  type INodeTypeDescription,
  type IWebhookFunctions,
  type IWebhookResponseData,
  NodeConnectionTypes,
  sleep,
} from "n8n-workflow";

import { call, isSigned } from "./calls";
import { EVENT_TYPES } from "./contract";

/** The member of an endpoint's metadata with the time when its workflow was unpublished. */
const UNPUBLISHED = "n8n_unpublished_at";
/** Events that came while a workflow was unpublished start it, unless that took longer than these milliseconds. */
const SHORT_TIME = 60 * 60 * 1000;
/** How much the clocks of n8n and the gateway may differ, in milliseconds. */
const CLOCKS = 30 * 1000;

/** Starts a workflow for each event of the gateway. The workflow's activation creates the endpoint. */
export class WhabuzzTrigger implements INodeType {
  description: INodeTypeDescription = {
    displayName: "Whabuzz Trigger",
    name: "whabuzzTrigger",
    icon: "file:whabuzz.svg",
    group: ["trigger"],
    version: 1,
    subtitle: '={{$parameter["events"].join(", ")}}',
    description: "Starts the workflow with WhatsApp messages, statuses and other events",
    defaults: { name: "Whabuzz Trigger" },
    inputs: [],
    outputs: [NodeConnectionTypes.Main],
    credentials: [{ name: "whabuzzApi", required: true }],
    webhooks: [{ name: "default", httpMethod: "POST", responseMode: "onReceived", path: "webhook" }],
    properties: [
      {
        displayName: "Events",
        name: "events",
        type: "multiOptions",
        options: [...EVENT_TYPES],
        default: ["message.inbound"],
        required: true,
        description: "Which events start the workflow",
      },
      {
        displayName: "Filter",
        name: "filter",
        type: "json",
        default: "",
        placeholder: '{"data.message.type": "button"}',
        description: "Only events whose content passes this filter of the gateway; empty is all",
      },
    ],
  };

  webhookMethods = {
    default: {
      async checkExists(this: IHookFunctions): Promise<boolean> {
        const found = await endpointOf(this);
        return (
          this.getWorkflowStaticData("node").secret !== undefined &&
          found?.status === "active" &&
          (found.metadata as IDataObject)[UNPUBLISHED] === undefined && // `create` queues what was missed.
          Object.entries(settingsOf(this)).every(([name, value]) => isDeepStrictEqual(found[name], value))
        );
      },

      async create(this: IHookFunctions): Promise<boolean> {
        const state = this.getWorkflowStaticData("node");
        const secret = (state.secret as string | undefined) ?? (await secretOf(this));
        const left = await endpointOf(this);
        if (left) {
          // A new endpoint would not get the deliveries that wait for this one.
          const path = `/v1/webhooks/${left.id}`;
          if (state.secret === undefined) await call(this, "POST", `${path}/rotate-secret`, { body: { secret, overlap_hours: 0 } });
          await call(this, "PATCH", path, { body: { ...settingsOf(this), status: "active" } });
          await recover(this, left);
        } else {
          await call(this, "POST", "/v1/webhooks", { body: { ...settingsOf(this), secret } });
        }
        state.secret = secret;
        return true;
      },

      /**
       * n8n calls this when a workflow is unpublished, before each new version of a published workflow is added, and when
       * it stops listening for a test event, always with the same mode. Only the URL names a test.
       */
      async delete(this: IHookFunctions): Promise<boolean> {
        const url = this.getNodeWebhookUrl("default");
        const uid = uidOf(this);
        const [test, published] = [await endpointOf(this, `${uid}${TEST}`), await endpointOf(this, uid)];
        if (test && test.url === url) {
          await call(this, "DELETE", `/v1/webhooks/${test.id}`);
        } else if (published && published.url === url) {
          const metadata = { [UNPUBLISHED]: new Date().toISOString(), ...(published.metadata as IDataObject) };
          await call(this, "PATCH", `/v1/webhooks/${published.id}`, { body: { status: "paused", metadata } });
        }
        return true;
      },
    },
  };

  async webhook(this: IWebhookFunctions): Promise<IWebhookResponseData> {
    const request = this.getRequestObject();
    const response = this.getResponseObject();
    // The ping comes before `create` has stored the secret, so the secret is derived again.
    const secret = (this.getWorkflowStaticData("node").secret as string | undefined) ?? (await secretOf(this));
    if (!isSigned(secret, this.getHeaderData() as IDataObject, request.rawBody)) {
      response.status(401).type("text/plain").send("The gateway did not sign this.");
      return { noWebhookResponse: true };
    }
    const body = this.getBodyData();
    if (body.type === "webhook.verify") {
      response.status(200).type("text/plain").send(String(body.challenge));
      return { noWebhookResponse: true };
    }
    return { workflowData: [this.helpers.returnJsonArray(body.type === "events" ? (body.events as IDataObject[]) : body)] };
  }
}

/** What the `uid` of an endpoint ends in while n8n listens for a test event. */
const TEST = ":test";

/** The endpoint's settings. */
function settingsOf(hook: IHookFunctions) {
  const filter = hook.getNodeParameter("filter", "") as string;
  return {
    url: hook.getNodeWebhookUrl("default") as string,
    uid: `${uidOf(hook)}${hook.getMode() === "manual" ? TEST : ""}`,
    event_types: hook.getNodeParameter("events") as string[],
    filter: filter ? (typeof filter === "string" ? JSON.parse(filter) : filter) as IDataObject : null,
  };
}

/** The `uid` of the endpoint of a published workflow. It names the workflow and the node. */
function uidOf(hook: IHookFunctions): string {
  return `n8n:${hook.getWorkflow().id}:${hook.getNode().id}`;
}

async function endpointOf(hook: IHookFunctions, uid: string = settingsOf(hook).uid): Promise<IDataObject | undefined> {
  const { data } = await call(hook, "GET", "/v1/webhooks", { qs: { uid } });
  return (data as IDataObject[])[0];
}

/** Queue the events that came while an endpoint, which is active again, was paused by `delete` for a short time. */
async function recover(hook: IHookFunctions, { id, metadata }: IDataObject): Promise<void> {
  const { [UNPUBLISHED]: at, ...others } = metadata as Record<string, string>;
  if (at === undefined) return;
  const [since, now] = [Date.parse(at), Date.now()];
  if (now - since < SHORT_TIME) {
    await sleep(1000); // An event whose storing began before the endpoint was active is missed, too.
    const body = { from: new Date(since - CLOCKS), to: new Date(now + CLOCKS), status: ["missed"] };
    await call(hook, "POST", `/v1/webhooks/${id}/replay`, { body });
  }
  await call(hook, "PATCH", `/v1/webhooks/${id}`, { body: { metadata: others } });
}

/** The secret of a new endpoint. It is derived from the API key and the node, so it can verify the ping. */
async function secretOf(from: IHookFunctions | IWebhookFunctions): Promise<string> {
  const { apiKey } = await from.getCredentials<{ apiKey: string }>("whabuzzApi");
  const made = createHmac("sha256", apiKey).update(`n8n:${from.getWorkflow().id}:${from.getNode().id}`);
  return `whsec_${made.digest("base64")}`;
}
