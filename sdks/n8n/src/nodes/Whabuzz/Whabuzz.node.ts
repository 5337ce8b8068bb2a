import { createHash } from "node:crypto";

import {
  type IDataObject,
  type IDisplayOptions,
  type IExecuteFunctions,
  type INodeExecutionData,
  type INodeProperties,
  type INodeType,
  type INodeTypeDescription,
  NodeConnectionTypes,
} from "n8n-workflow";

import { call } from "./calls";
import { MEDIA_TYPES } from "./contract";

/** Longer than the gateway knows an idempotency key, and shorter than WhatsApp keeps a file. */
const UPLOAD_KEPT_MS = 2 * 86_400_000;
const MOST_UPLOADS = 1000;
/** The id of a customer whose phone number WhatsApp does not show. */
const USER_ID = /^[A-Z]{2}\.[A-Za-z0-9.]+$/;
const SENDS = ["sendText", "sendTemplate", "sendMedia"];

/** Sends messages, marks messages as read and looks them up. */
export class Whabuzz implements INodeType {
  description: INodeTypeDescription = {
    displayName: "Whabuzz",
    name: "whabuzz",
    icon: "file:whabuzz.svg",
    group: ["output"],
    version: 1,
    subtitle: '={{$parameter["operation"]}}',
    description: "Sends WhatsApp messages, marks them as read and looks them up",
    defaults: { name: "Whabuzz" },
    usableAsTool: true,
    inputs: [NodeConnectionTypes.Main],
    outputs: [NodeConnectionTypes.Main],
    credentials: [{ name: "whabuzzApi", required: true }],
    properties: [
      {
        displayName: "Operation",
        name: "operation",
        type: "options",
        noDataExpression: true,
        options: [
          { name: "Send Text", value: "sendText", action: "Send a text" },
          { name: "Send Template", value: "sendTemplate", action: "Send a template" },
          { name: "Send Media", value: "sendMedia", action: "Send a file" },
          { name: "Mark as Read", value: "markRead", action: "Mark a message as read" },
          { name: "Get Message", value: "getMessage", action: "Look up a message" },
        ],
        default: "sendText",
      },
      text("From", "from", [...SENDS, "markRead"], "The id of your number, or the number itself", {
        default: "={{ $json.phone_number_id }}",
      }),
      text("To", "to", SENDS, "The customer's phone number with its country code, or the customer's user ID", { placeholder: "+919812345678" }),
      text("Message ID", "messageId", ["markRead", "getMessage"], "The wamid of the message", {
        default: "={{ $json.wamid }}",
      }),
      text("Text", "text", ["sendText"], "What the customer reads", { typeOptions: { rows: 3 } }),
      text("Template", "template", ["sendTemplate"], "The name of an approved template"),
      text("Language", "language", ["sendTemplate"], "The language code of the template", { default: "en" }),
      {
        displayName: "Body Parameters",
        name: "parameters",
        type: "string",
        typeOptions: { multipleValues: true, multipleValueButtonText: "Add Parameter" },
        default: [],
        description: "The values for {{1}}, {{2}} and so on in the template's body",
        displayOptions: shown(["sendTemplate"]),
      },
      {
        displayName: "Type",
        name: "type",
        type: "options",
        options: [...MEDIA_TYPES],
        default: "image",
        displayOptions: shown(["sendMedia"]),
      },
      text("Link", "link", ["sendMedia"], "The address of the file; empty takes it from the item's binary data", {
        required: false,
      }),
      text("Input Data Field Name", "binary", ["sendMedia"], "The binary field that holds the file, without a link", {
        default: "data",
      }),
      {
        displayName: "Options",
        name: "options",
        type: "collection",
        placeholder: "Add Option",
        default: {},
        displayOptions: shown(SENDS),
        options: [
          {
            displayName: "Caption",
            name: "caption",
            type: "string",
            default: "",
            description: "Text below an image, a video or a document",
          },
          {
            displayName: "Components",
            name: "components",
            type: "json",
            default: "[]",
            description: "The components of a template that has more than body parameters, as WhatsApp has them",
          },
          {
            displayName: "Idempotency Key",
            name: "idempotencyKey",
            type: "string",
            default: "",
            description: "A name for what happens once, such as an order number: the same key sends nothing twice within 24 hours",
          },
          {
            displayName: "Reply To",
            name: "replyTo",
            type: "string",
            default: "",
            description: "The wamid of the message that this one answers",
          },
          {
            displayName: "Send At",
            name: "sendAt",
            type: "dateTime",
            default: "",
            description: "When to send it, instead of now",
          },
        ],
      },
    ],
  };

  async execute(this: IExecuteFunctions): Promise<INodeExecutionData[][]> {
    const done: INodeExecutionData[] = [];
    for (const item of this.getInputData().keys()) {
      try {
        done.push({ json: await OPERATIONS[this.getNodeParameter("operation", item) as string]!(this, item), pairedItem: { item } });
      } catch (error) {
        if (!this.continueOnFail()) throw error;
        done.push({ json: { error: (error as Error).message }, pairedItem: { item } });
      }
    }
    return [done];
  }
}

const OPERATIONS: Record<string, (node: IExecuteFunctions, item: number) => Promise<IDataObject>> = {
  sendText: (node, item) => send(node, item, "text", { body: node.getNodeParameter("text", item) }),

  sendTemplate(node, item) {
    const { components } = optionsOf(node, item);
    const texts = node.getNodeParameter("parameters", item, []) as string[];
    const body = { type: "body", parameters: texts.map((each) => ({ type: "text", text: String(each) })) };
    const given = typeof components === "string" ? (JSON.parse(components) as IDataObject[]) : components;
    return send(node, item, "template", {
      name: node.getNodeParameter("template", item),
      language: { code: node.getNodeParameter("language", item) },
      components: [...(texts.length > 0 ? [body] : []), ...(given ?? [])],
    });
  },

  async sendMedia(node, item) {
    const type = node.getNodeParameter("type", item) as string;
    const link = node.getNodeParameter("link", item, "") as string;
    const { caption } = optionsOf(node, item);
    const file = link ? { link } : await upload(node, item);
    return await send(node, item, type, { ...file, ...(caption ? { caption } : {}) });
  },

  markRead: (node, item) =>
    call(node, "POST", "/v1/messages/read", {
      body: { from: node.getNodeParameter("from", item), message_id: node.getNodeParameter("messageId", item) },
    }),

  getMessage: (node, item) =>
    call(node, "GET", `/v1/messages/${encodeURIComponent(node.getNodeParameter("messageId", item) as string)}`),
};

/** Sends a message now or later. A retry of the node by n8n has the same idempotency key, so nothing is sent twice. */
async function send(node: IExecuteFunctions, item: number, type: string, content: IDataObject): Promise<IDataObject> {
  const { idempotencyKey, replyTo, sendAt } = optionsOf(node, item);
  const to = String(node.getNodeParameter("to", item));
  const message = {
    from: node.getNodeParameter("from", item),
    ...(USER_ID.test(to) ? { recipient: to } : { to }),
    type,
    [type]: content,
    ...(replyTo ? { context: { message_id: replyTo } } : {}),
  };
  const headers = { "Idempotency-Key": idempotencyKey || keyOf(node, item) };
  if (!sendAt) return await call(node, "POST", "/v1/messages", { headers, body: message });
  const body = { ...message, send_at: inUtc(node, item, sendAt) };
  return await call(node, "POST", "/v1/messages/scheduled", { headers, body });
}

/** A time in UTC. A time without an offset is one of the workflow's zone, in which n8n evaluates expressions. */
function inUtc(node: IExecuteFunctions, item: number, time: string): string {
  const written = JSON.stringify(String(time));
  return node.evaluateExpression(`{{ DateTime.fromISO(${written}).toUTC().toISO() }}`, item) as string;
}

/** The idempotency key of an item. It is unique for each item, run, node and execution, in all n8n installations. */
function keyOf(node: IExecuteFunctions, item: number): string {
  const run = node.evaluateExpression("{{ $runIndex }}", item);
  const place = [node.getInstanceId(), node.getExecutionId(), node.getWorkflow().id, node.getNode().id, run, item];
  return createHash("sha256").update(JSON.stringify(place)).digest("hex");
}

interface Upload extends IDataObject {
  id: string;
  at: number;
}

/** The files that this process uploaded, for the retries of a run. */
const uploadsOfRuns: { uploads?: Record<string, Upload> } = {};

/**
 * The media id of a file that was uploaded with the same idempotency key, otherwise of a new upload. With another media
 * id, a repeat would be another message under the same key, which the gateway refuses.
 */
async function uploadedOnce(node: IExecuteFunctions, item: number, file: string, upload: () => Promise<string>): Promise<string> {
  const { idempotencyKey } = optionsOf(node, item);
  // Only a key of the user's own can come again in a later run.
  const place = idempotencyKey ? node.getWorkflowStaticData("node") : uploadsOfRuns;
  const key = [idempotencyKey || keyOf(node, item), node.getNodeParameter("from", item), file];
  const name = createHash("sha256").update(JSON.stringify(key)).digest("hex");
  const known = () => (place.uploads ?? {}) as Record<string, Upload>;
  const found = known()[name];
  if (found && Date.now() - found.at < UPLOAD_KEPT_MS) return found.id;
  const made: [string, Upload] = [name, { id: await upload(), at: Date.now() }];
  const others = Object.entries(known()).filter(([, { at }]) => Date.now() - at < UPLOAD_KEPT_MS);
  place.uploads = Object.fromEntries([...others.slice(1 - MOST_UPLOADS), made]);
  return made[1].id;
}

/** Uploads an item's file. Returns its id, and the file name for a document. */
async function upload(node: IExecuteFunctions, item: number): Promise<IDataObject> {
  const field = node.getNodeParameter("binary", item) as string;
  const { mimeType, fileName } = node.helpers.assertBinaryData(item, field);
  const bytes = await node.helpers.getBinaryDataBuffer(item, field);
  const form = new FormData();
  form.append("from", node.getNodeParameter("from", item) as string);
  form.append("file", new Blob([new Uint8Array(bytes)], { type: mimeType }), fileName ?? "file");
  const file = createHash("sha256").update(JSON.stringify([mimeType, fileName])).update(bytes).digest("hex");
  const id = await uploadedOnce(node, item, file, async () => {
    const encoded = new Response(form);
    const uploaded = await call(node, "POST", "/v1/media", {
      headers: { "Content-Type": encoded.headers.get("content-type") },
      body: Buffer.from(await encoded.arrayBuffer()),
    });
    return uploaded.id as string;
  });
  return { id, ...(node.getNodeParameter("type", item) === "document" && fileName ? { filename: fileName } : {}) };
}

interface Options extends IDataObject {
  caption?: string;
  components?: string | IDataObject[];
  idempotencyKey?: string;
  replyTo?: string;
  sendAt?: string;
}

function optionsOf(node: IExecuteFunctions, item: number): Options {
  return node.getNodeParameter("options", item, {}) as Options;
}

function shown(operations: string[]): IDisplayOptions {
  return { show: { operation: operations } };
}

function text(
  displayName: string,
  name: string,
  operations: string[],
  description: string,
  more: Partial<INodeProperties> = {},
): INodeProperties {
  return {
    displayName,
    name,
    type: "string",
    default: "",
    required: true,
    description,
    displayOptions: shown(operations),
    ...more,
  };
}
