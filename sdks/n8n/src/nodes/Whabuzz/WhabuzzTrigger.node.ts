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
} from "n8n-workflow";

import { call, isSigned } from "./calls";
import { EVENT_TYPES } from "./contract";

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
          Object.entries(settingsOf(this)).every(([name, value]) => isDeepStrictEqual(found[name], value))
        );
      },

      async create(this: IHookFunctions): Promise<boolean> {
        const state = this.getWorkflowStaticData("node");
        const secret = (state.secret as string | undefined) ?? (await secretOf(this));
        const left = await endpointOf(this);
        if (left) {
          // The endpoint is not made anew: the deliveries that wait for it would never be sent.
          const path = `/v1/webhooks/${left.id}`;
          if (state.secret === undefined) await call(this, "POST", `${path}/rotate-secret`, { body: { secret, overlap_hours: 0 } });
          await call(this, "PATCH", path, { body: { ...settingsOf(this), status: "active" } });
        } else {
          await call(this, "POST", "/v1/webhooks", { body: { ...settingsOf(this), secret } });
        }
        state.secret = secret;
        return true;
      },

      async delete(this: IHookFunctions): Promise<boolean> {
        const found = await endpointOf(this);
        if (found) await call(this, "DELETE", `/v1/webhooks/${found.id}`);
        delete this.getWorkflowStaticData("node").secret;
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

/** The endpoint's settings. Its `uid` names the workflow and the node, with a suffix while n8n listens for a test event. */
function settingsOf(hook: IHookFunctions) {
  const filter = hook.getNodeParameter("filter", "") as string;
  return {
    url: hook.getNodeWebhookUrl("default") as string,
    uid: `n8n:${hook.getWorkflow().id}:${hook.getNode().id}${hook.getMode() === "manual" ? ":test" : ""}`,
    event_types: hook.getNodeParameter("events") as string[],
    filter: filter ? (typeof filter === "string" ? JSON.parse(filter) : filter) as IDataObject : null,
  };
}

async function endpointOf(hook: IHookFunctions): Promise<IDataObject | undefined> {
  const { data } = await call(hook, "GET", "/v1/webhooks", { qs: { uid: settingsOf(hook).uid } });
  return (data as IDataObject[])[0];
}

/** The secret of a new endpoint. It is derived from the API key and the node, so it can verify the ping. */
async function secretOf(from: IHookFunctions | IWebhookFunctions): Promise<string> {
  const { apiKey } = await from.getCredentials<{ apiKey: string }>("whabuzzApi");
  const made = createHmac("sha256", apiKey).update(`n8n:${from.getWorkflow().id}:${from.getNode().id}`);
  return `whsec_${made.digest("base64")}`;
}
