// Bots on public Node libraries for the Cloud API: each replies to one received image.
//
// `test_cloud_api_libraries.py` runs it with the library's name as argument. The libraries are unmodified. A bot sets
// the base address as docs/cloud-api.md says, and reports each step as a line of JSON on standard output.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const { GATEWAY, KEY, PHONE, ACCOUNT, VERIFY_TOKEN, SECRET, PORT, PICTURE } = process.env;
const TEMPLATE = "hello_world", LANGUAGE = "en_US", ANSWER = "Thank you for the picture.";
const PICTURE_LINK = "https://shop.example/picture.jpg";
const VERSION = "v25.0";
const require = createRequire(import.meta.url);

const write = process.stdout.write.bind(process.stdout);
// Standard output is for the report, so the log lines of libraries go elsewhere.
console.log = console.info = (...words) => console.error(...words);

const report = (step, facts = {}) => write(JSON.stringify({ step, ...facts }) + "\n");
const digest = (content) => createHash("sha256").update(Buffer.from(content)).digest("hex");
const failed = (error) => report("failed", { error: error?.stack ?? JSON.stringify(error) });
const reporting = (handle) => async (...given) => {
  try {
    await handle(...given);
    report("done");
  } catch (error) {
    failed(error);
  }
};
process.on("uncaughtException", failed);

// A web server for a library that has none. `verified` returns the notification, or throws.
function serve(challenge, verified, handle) {
  const answer = reporting(handle);
  createServer(async (request, response) => {
    try {
      const query = Object.fromEntries(new URL(request.url, GATEWAY).searchParams);
      if (request.method === "GET") return response.end(await challenge(query, request));
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      const notification = await verified(Buffer.concat(chunks).toString(), request, query);
      response.end();
      answer(notification);
    } catch (error) {
      response.writeHead(401).end();
    }
  }).listen(Number(PORT), "127.0.0.1", () => report("listening"));
}

const checked = (query) => {
  if (query["hub.verify_token"] !== VERIFY_TOKEN) throw new Error("wrong token");
  return query["hub.challenge"];
};
const messageOf = (notification) => notification.entry[0].changes[0].value.messages[0];

const bots = {
  async "@kapso/whatsapp-cloud-api"() {
    const { WhatsAppClient } = await import("@kapso/whatsapp-cloud-api");
    const { normalizeWebhook, verifySignature } = await import("@kapso/whatsapp-cloud-api/server");
    const client = new WhatsAppClient({ accessToken: KEY, baseUrl: GATEWAY, graphVersion: VERSION });
    const verified = (rawBody, request) => {
      const signatureHeader = request.headers["x-hub-signature-256"];
      if (!verifySignature({ appSecret: SECRET, rawBody, signatureHeader })) throw new Error("not signed");
      return normalizeWebhook(JSON.parse(rawBody));
    };
    serve(checked, verified, async ({ messages: [message] }) => {
      const phoneNumberId = PHONE, to = message.from, name = "picture.jpg";
      report("download", { sha256: digest(await client.media.download({ mediaId: message.image.id, phoneNumberId, auth: "always" })) });
      await client.messages.markRead({ phoneNumberId, messageId: message.id });
      report("read", { id: message.id });
      const text = await client.messages.sendText({ phoneNumberId, to, body: ANSWER });
      report("text", { id: text.messages[0].id });
      const file = new Blob([readFileSync(PICTURE)], { type: "image/jpeg" });
      const { id } = await client.media.upload({ phoneNumberId, type: "image", file, fileName: name });
      const image = await client.messages.sendImage({ phoneNumberId, to, image: { id } });
      report("media", { id: image.messages[0].id });
      const template = { name: TEMPLATE, language: { code: LANGUAGE } };
      const sent = await client.messages.sendTemplate({ phoneNumberId, to, template });
      report("template", { id: sent.messages[0].id });
      const { data } = await client.templates.list({ businessAccountId: ACCOUNT });
      report("templates", { names: data.map((each) => each.name) });
    });
  },

  async "@great-detail/whatsapp"() {
    const { Client } = await import("@great-detail/whatsapp");
    const request = { headers: { Authorization: `Bearer ${KEY}` } };
    const client = new Client({ prefixUrl: GATEWAY, graphVersion: VERSION, request });
    const challenge = async (query, { method, headers }) => {
      const registration = await client.webhook.register({ method, query, headers });
      if (registration.verifyToken !== VERIFY_TOKEN) throw new Error("wrong token");
      return registration.accept();
    };
    const verified = async (body, { method, headers }, query) => {
      const event = await client.webhook.eventNotification({ method, query, body, headers });
      await event.verifySignature(SECRET);
      return event.eventNotification;
    };
    serve(challenge, verified, async (notification) => {
      const message = messageOf(notification), phoneNumberID = PHONE, to = message.from;
      const { url } = await client.media.getURL({ mediaID: message.image.id, phoneNumberID }).json();
      const download = await client.media.download({ mediaURL: url, request });
      report("download", { sha256: digest(await download.arrayBuffer()) });
      await client.message.createStatus({ phoneNumberID, message_id: message.id, status: "read" });
      report("read", { id: message.id });
      const text = { phoneNumberID, to, type: "text", text: { body: ANSWER } };
      report("text", { id: (await client.message.createMessage(text).json()).messages[0].id });
      const file = new Blob([readFileSync(PICTURE)], { type: "image/jpeg" });
      const upload = { phoneNumberID, mimeType: "image/jpeg", filename: "picture.jpg", file };
      const { id } = await client.media.upload(upload).json();
      const image = { phoneNumberID, to, type: "image", image: { id } };
      report("media", { id: (await client.message.createMessage(image).json()).messages[0].id });
      const named = { name: TEMPLATE, language: { code: LANGUAGE } };
      const template = { phoneNumberID, to, type: "template", template: named };
      report("template", { id: (await client.message.createMessage(template).json()).messages[0].id });
      const { data } = await client.template.list(ACCOUNT, {}).json();
      report("templates", { names: data.map((each) => each.name) });
    });
  },

  async "whatsapp-api-js"() {
    const { WhatsAppAPI } = await import("whatsapp-api-js");
    const { Image, Language, Template, Text } = await import("whatsapp-api-js/messages");
    const client = new WhatsAppAPI({
      token: KEY,
      appSecret: SECRET,
      webhookVerifyToken: VERIFY_TOKEN,
      v: VERSION,
      ponyfill: { fetch: (url, options) => fetch(String(url).replace("https://graph.facebook.com", GATEWAY), options) },
    });
    client.on.message = reporting(async ({ message, from }) => {
      const { url } = await client.retrieveMedia(message.image.id, PHONE);
      report("download", { sha256: digest(await (await client.fetchMedia(url)).arrayBuffer()) });
      await client.markAsRead(PHONE, message.id);
      report("read", { id: message.id });
      report("text", { id: (await client.sendMessage(PHONE, from, new Text(ANSWER))).messages[0].id });
      const form = new FormData();
      form.set("file", new Blob([readFileSync(PICTURE)], { type: "image/jpeg" }), "picture.jpg");
      const { id } = await client.uploadMedia(PHONE, form);
      report("media", { id: (await client.sendMessage(PHONE, from, new Image(id, true))).messages[0].id });
      const template = new Template(TEMPLATE, new Language(LANGUAGE));
      report("template", { id: (await client.sendMessage(PHONE, from, template)).messages[0].id });
    });
    createServer(async (request, response) => {
      try {
        const query = Object.fromEntries(new URL(request.url, GATEWAY).searchParams);
        if (request.method === "GET") return response.end(client.get(query));
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        const body = Buffer.concat(chunks).toString();
        // Do not await the handler, because the response must not wait for it.
        await client.post(JSON.parse(body), body, request.headers["x-hub-signature-256"]);
        response.end();
      } catch (error) {
        response.writeHead(error.httpStatus ?? 500).end();
      }
    }).listen(Number(PORT), "127.0.0.1", () => report("listening"));
  },

  async whatsapp() {
    Object.assign(process.env, {
      WA_BASE_URL: "gateway.example",
      M4D_APP_ID: "1",
      M4D_APP_SECRET: SECRET,
      WA_PHONE_NUMBER_ID: PHONE,
      WA_BUSINESS_ACCOUNT_ID: ACCOUNT,
      CLOUD_API_ACCESS_TOKEN: KEY,
      CLOUD_API_VERSION: VERSION,
      WEBHOOK_VERIFICATION_TOKEN: VERIFY_TOKEN,
    });
    const WhatsApp = require("whatsapp");
    // The library's own server fails on every notification: it joins the chunks of a body to a string, and then needs
    // bytes. The bot therefore runs its own server, and uses the library's function for the signature.
    const entry = require.resolve("whatsapp");
    const { generateXHub256Sig } = require(entry.replace(/index\.js$/, "utils.js"));
    const client = new WhatsApp(PHONE);
    const verified = (body, request) => {
      if (request.headers["x-hub-signature-256"] !== `sha256=${generateXHub256Sig(body, SECRET)}`)
        throw new Error("not signed");
      return JSON.parse(body);
    };
    const idOf = async (answer) => (await (await answer).responseBodyToJSON()).messages[0].id;
    serve(checked, verified, async (notification) => {
      const message = messageOf(notification), to = message.from;
      const read = await client.messages.status({ status: "read", message_id: message.id });
      if (read.statusCode() !== 200) throw new Error("not read");
      report("read", { id: message.id });
      report("text", { id: await idOf(client.messages.text({ body: ANSWER }, to)) });
      report("media", { id: await idOf(client.messages.image({ link: PICTURE_LINK }, to)) });
      const template = { name: TEMPLATE, language: { code: LANGUAGE } };
      report("template", { id: await idOf(client.messages.template(template, to)) });
    });
  },

  async "whatsapp-business"() {
    const { WABAClient, WebhookClient } = require("whatsapp-business");
    const client = new WABAClient({ apiToken: KEY, phoneId: PHONE, accountId: ACCOUNT });
    const webhook = new WebhookClient({ path: "/", port: Number(PORT), token: VERIFY_TOKEN });
    const onMessageReceived = reporting(async (message) => {
      const { url } = await client.getMedia(message.image.id);
      const path = `${PICTURE}.business`;
      const written = await client.downloadMedia(url, path);
      await new Promise((resolve, reject) => written.on("finish", resolve).on("error", reject));
      report("download", { sha256: digest(readFileSync(path)) });
      await client.markMessageAsRead(message.id);
      report("read", { id: message.id });
      const to = message.from;
      const text = await client.sendMessage({ to, type: "text", text: { body: ANSWER } });
      report("text", { id: text.messages[0].id });
      const { id } = await client.uploadMedia({ file: PICTURE, type: "image/jpeg" });
      const image = await client.sendMessage({ to, type: "image", image: { id } });
      report("media", { id: image.messages[0].id });
      const template = { name: TEMPLATE, language: { code: LANGUAGE } };
      const sent = await client.sendMessage({ to, type: "template", template });
      report("template", { id: sent.messages[0].id });
    });
    webhook.initWebhook({ onMessageReceived, onStartListening: () => report("listening") });
  },

  async "whatsapp-cloud-api"() {
    const { createBot } = require("whatsapp-cloud-api");
    const bot = createBot(PHONE, KEY, { version: VERSION });
    await bot.startExpressServer({ port: Number(PORT), webhookPath: "/", webhookVerifyToken: VERIFY_TOKEN });
    bot.on("image", reporting(async (message) => {
      const to = message.from;
      report("text", { id: (await bot.sendText(to, ANSWER)).messageId });
      report("media", { id: (await bot.sendImage(to, PICTURE_LINK)).messageId });
      report("template", { id: (await bot.sendTemplate(to, TEMPLATE, LANGUAGE)).messageId });
    }));
    report("listening");
  },
};

await bots[process.argv[2]]();
