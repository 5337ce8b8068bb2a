// The built n8n node against a running gateway, with as much of n8n around it as its functions ask for.
// Arguments: a JSON task, and the folder of the built package. Prints what it saw as JSON.

const { createHmac } = require("node:crypto");
const http = require("node:http");

const { DateTime, Settings } = require("luxon");

const task = JSON.parse(process.argv[2]);
const { Whabuzz } = require(`${process.argv[3]}/dist/nodes/Whabuzz/Whabuzz.node.js`);
const { WhabuzzTrigger } = require(`${process.argv[3]}/dist/nodes/Whabuzz/WhabuzzTrigger.node.js`);
const requests = [];

async function request(_, { method, url, headers, body, qs }) {
  requests.push({ method, url, headers, body });
  const answer = await fetch(qs ? `${url}?${new URLSearchParams(qs)}` : url, {
    method,
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${task.apiKey}`, ...headers },
    body: body instanceof Buffer || body === undefined ? body : JSON.stringify(body),
  });
  const data = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(answer.statusText), { response: { status: answer.status, data } });
  return data;
}

const place = {
  getNode: () => ({ id: "node-1", name: "Whabuzz", type: "whabuzz" }),
  getWorkflow: () => ({ id: task.workflow }),
  getCredentials: async () => ({ baseUrl: `${task.baseUrl}/`, apiKey: task.apiKey }),
};

const stored = {};

/** An expression's value. The workflow's time zone is not that of the process. */
function evaluated(expression) {
  Settings.defaultZone = "Asia/Kolkata";
  return new Function("DateTime", "$runIndex", `return ${expression.slice(2, -2)}`)(DateTime, 0);
}

function execution(parameters, items = [{ json: {} }]) {
  const file = { data: Buffer.from(parameters.picture ?? task.picture, "base64"), mimeType: "image/jpeg", fileName: "a.jpg" };
  return {
    ...place,
    getInputData: () => items,
    getNodeParameter: (name, _, unset) => parameters[name] ?? unset,
    getWorkflowStaticData: () => stored,
    getInstanceId: () => "instance",
    getExecutionId: () => parameters.execution ?? task.workflow,
    evaluateExpression: evaluated,
    continueOnFail: () => parameters.continues ?? false,
    helpers: {
      httpRequestWithAuthentication: { call: (_, ...rest) => request(...rest) },
      assertBinaryData: () => file,
      getBinaryDataBuffer: async () => file.data,
    },
  };
}

async function run(parameters) {
  const node = new Whabuzz();
  const [items] = await node.execute.call(execution({ from: task.from, to: task.to, ...parameters }));
  return items[0].json;
}

function trigger(url, parameters, state, mode = "trigger") {
  return {
    ...place,
    getNodeWebhookUrl: () => url,
    getMode: () => mode,
    getNodeParameter: (name) => parameters[name],
    getWorkflowStaticData: () => state,
    helpers: {
      httpRequestWithAuthentication: { call: (_, ...rest) => request(...rest) },
      returnJsonArray: (data) => (Array.isArray(data) ? data : [data]).map((json) => ({ json })),
    },
  };
}

async function receives() {
  const state = {};
  const started = [];
  const ids = new Set();
  let away = false;
  let refused = 0;
  const hook = new WhabuzzTrigger();
  const server = http.createServer(async (incoming, outgoing) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const rawBody = Buffer.concat(chunks);
    if (away && JSON.parse(rawBody).type !== "webhook.verify") {
      refused++;
      outgoing.statusCode = 503;
      return outgoing.end();
    }
    const response = {
      status: (code) => ((outgoing.statusCode = code), response),
      type: () => response,
      send: (text) => outgoing.end(text),
    };
    const result = await hook.webhook.call({
      ...trigger("", {}, state),
      getRequestObject: () => ({ rawBody }),
      getResponseObject: () => response,
      getHeaderData: () => incoming.headers,
      getBodyData: () => JSON.parse(rawBody),
    });
    if (result.noWebhookResponse) return;
    started.push(result.workflowData[0].map(({ json }) => json.type));
    for (const { json } of result.workflowData[0]) ids.add(json.wamid);
    outgoing.end("{}");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}/webhook/1/webhook`;
  const methods = hook.webhookMethods.default;
  const [given, changed] = [{ events: ["message.inbound"], filter: "" }, { events: ["*"], filter: '{"data.message.type": "text", "type": "message.inbound"}' }];
  const webhooks = `${task.baseUrl}/v1/webhooks`;
  const own = async () => (await request(null, { method: "GET", url: webhooks, qs: { limit: 200 } })).data.filter((each) => each.url === url);
  const seen = [];
  seen.push(await methods.checkExists.call(trigger(url, given, state)));
  await methods.create.call(trigger(url, given, state));
  seen.push(await methods.checkExists.call(trigger(url, given, state)));
  seen.push(await methods.checkExists.call(trigger(url, changed, state)));
  const [first] = await own();
  await methods.create.call(trigger(url, changed, state));
  seen.push(await methods.checkExists.call(trigger(url, changed, state)));
  // n8n has lost what the node stored, and the endpoint waits with another secret.
  delete state.secret;
  await request(null, { method: "POST", url: `${webhooks}/${first.id}/rotate-secret`, body: { overlap_hours: 0 } });
  await request(null, { method: "PATCH", url: `${webhooks}/${first.id}`, body: { status: "paused" } });
  seen.push(await methods.checkExists.call(trigger(url, changed, state)));
  await methods.create.call(trigger(url, changed, state));
  seen.push(await methods.checkExists.call(trigger(url, changed, state)));
  const post = async (body, { age = 0, secret = state.secret } = {}) => {
    const timestamp = String(Math.floor(Date.now() / 1000) - age);
    const key = Buffer.from(secret.slice("whsec_".length), "base64");
    const made = createHmac("sha256", key).update(`evt_1.${timestamp}.${body}`).digest("base64");
    const headers = { "webhook-id": "evt_1", "webhook-timestamp": timestamp, "webhook-signature": `v1a,x v1,${made}` };
    return (await fetch(url, { method: "POST", headers, body })).status;
  };
  const statuses = [
    await post('{"type": "events", "events": [{"type": "a"}, {"type": "ä"}]}'),
    await post("{}", { age: 400 }),
    await post("{}", { secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }),
    (await fetch(url, { method: "POST", body: "{}" })).status,
  ];
  const endpoints = await own();
  await request(null, { method: "POST", url: `${webhooks}/${first.id}/test`, body: { event_type: "message.inbound" } });

  // A change is published: n8n removes the webhooks of the workflow and adds them again, both with the same functions.
  const sends = { events: ["message.outbound"], filter: "" };
  await methods.create.call(trigger(url, sends, state));
  const wamids = [];
  const send = async (name) => wamids.push((await run({ operation: "sendText", text: name, execution: name, options: { idempotencyKey: `${name}-${task.workflow}` } })).messages[0].id);
  const until = async (isDone) => {
    for (let tries = 0; !isDone() && tries < 200; tries++) await new Promise((resolve) => setTimeout(resolve, 100));
  };
  away = true;
  await send("waits");
  await until(() => refused > 0);
  await methods.delete.call(trigger(url, sends, state, "internal"));
  const unpublished = (await own()).map(({ id, status }) => ({ same: id === first.id, status }));
  await send("missed");
  away = false;
  await methods.create.call(trigger(url, sends, state));
  await until(() => wamids.every((wamid) => ids.has(wamid)));
  const arrived = wamids.map((wamid) => ids.has(wamid));
  const [{ metadata }] = await own();

  // Listening for a test event ends with the mode "internal", as if the workflow were unpublished.
  const testUrl = url.replace("/webhook/", "/webhook-test/");
  await methods.create.call(trigger(testUrl, sends, {}, "manual"));
  await methods.delete.call(trigger(testUrl, sends, {}, "internal"));
  const { data: left } = await request(null, { method: "GET", url: webhooks, qs: { limit: 200 } });
  const tested = [left.filter((each) => each.url === testUrl).length, (await own()).map(({ id, status }) => [id === first.id, status])];

  // The endpoint was made active in the console before the workflow is published again.
  await methods.delete.call(trigger(url, sends, state));
  await request(null, { method: "PATCH", url: `${webhooks}/${first.id}`, body: { status: "active" } });
  const noted = [await methods.checkExists.call(trigger(url, sends, state))];
  await methods.create.call(trigger(url, sends, state));
  noted.push(await methods.checkExists.call(trigger(url, sends, state)), (await own())[0].metadata);

  await methods.delete.call(trigger(url, changed, state));
  seen.push(await methods.checkExists.call(trigger(url, changed, state)));
  await request(null, { method: "DELETE", url: `${webhooks}/${first.id}` });
  await methods.delete.call(trigger(url, changed, state));
  server.close();
  return { published: { unpublished, arrived, metadata, tested, noted }, seen, statuses, started: started.slice(0, 2), endpoints: endpoints.map(({ id, status, filter }) => ({ same: id === first.id, status, filter })), state: Object.keys(state) };
}

async function main() {
  const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
  const text = { operation: "sendText", text: "Hello" };
  const sent = await run(text);
  const again = await run(text);
  const template = await run({ operation: "sendTemplate", template: "n8n_order", language: "en", parameters: ["Asha", "A-17"], options: { idempotencyKey: `t-${task.workflow}` } });
  const template_body = requests.at(-1).body.template;
  const media = await run({ operation: "sendMedia", type: "image", binary: "data", options: { caption: "Look", idempotencyKey: `m-${task.workflow}` } });
  const uploads = () => requests.filter(({ url }) => url.endsWith("/v1/media")).length;
  const file = { operation: "sendMedia", type: "image", binary: "data", execution: "another" };
  const repeats = [];
  for (const options of [{ caption: "Look", idempotencyKey: `m-${task.workflow}` }, { caption: "Again" }]) {
    const before = uploads();
    const ids = [await run({ ...file, options }), await run({ ...file, options })].map((each) => each.messages[0].id);
    repeats.push([ids[0] === ids[1], ids[0] === media.messages[0].id, uploads() - before]);
  }
  const picture = Buffer.concat([Buffer.from(task.picture, "base64"), Buffer.alloc(1)]).toString("base64");
  const another = await run({ ...file, picture, continues: true, options: { idempotencyKey: `m-${task.workflow}` } });
  const later = await run({ ...text, options: { sendAt: tomorrow, idempotencyKey: `l-${task.workflow}` } });
  const local = DateTime.fromISO(tomorrow, { zone: "Asia/Kolkata" }).toISO({ includeOffset: false });
  const in_the_zone = await run({ ...text, options: { sendAt: local, idempotencyKey: `z-${task.workflow}` } });
  await run({ ...text, to: "IN.77889900112233445566", options: { idempotencyKey: `u-${task.workflow}` } });
  const { to, recipient } = requests.at(-1).body;
  const found = await run({ operation: "getMessage", messageId: sent.messages[0].id });
  const failed = await run({ ...text, from: "1", continues: true, options: { idempotencyKey: `f-${task.workflow}` } });
  console.log(
    JSON.stringify({
      same: sent.messages[0].id === again.messages[0].id,
      template: [template.messages.length, template_body],
      media: media.messages.length,
      repeats,
      another: [another.error, Object.keys(stored.uploads).length],
      later: [later.status, later.send_at === tomorrow, in_the_zone.send_at === tomorrow],
      addressed: [to ?? null, recipient],
      found: [found.id === sent.messages[0].id, found.type],
      failed,
      trigger: await receives(),
    }),
  );
}

main();
