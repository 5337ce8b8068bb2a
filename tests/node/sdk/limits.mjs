// What ends a call or an event stream: its time-out, the caller's signal and the service's answers. Prints what it saw
// as JSON. Run by tests/e2e/sdks/test_typescript_sdk.py.
import { createServer } from "node:http";
import { APIError, NoAnswer, StreamEnded, Whabuzz, WhabuzzError } from "whabuzz";

const LONG = 3_600_000;
const seen = {};

// Each answer begins, and never ends.
const server = createServer((request, response) => {
  response.writeHead(200, { "Content-Type": "application/json" });
  response.write('{"id":');
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const baseUrl = `http://127.0.0.1:${server.address().port}`;
const client = (options) => new Whabuzz({ apiKey: "wb_test_x", baseUrl, maxRetries: 0, timeout: LONG, ...options });
const refused = (call) => call().then(() => "answered", (error) => error);
const calls = {
  json: (from, options) => from.tenant.get(options),
  page: (from, options) => from.events.list({}, options).firstPage(),
  file: async (from, options) => (await from.media.get("1", {}, options)).bytes(),
};
for (const [kind, call] of Object.entries(calls)) {
  const stop = new AbortController();
  const begun = async (...asked) => {
    const answer = await fetch(...asked);
    setTimeout(() => stop.abort(new Error("enough")));
    return answer;
  };
  const stopped = await refused(() => call(client({ fetch: begun }), { signal: stop.signal }));
  const late = await refused(() => call(client(), { timeout: 100 }));
  seen[kind] = [stopped.message, late instanceof NoAnswer, /timed out/.test(late.message)];
}
server.closeAllConnections();
server.close();

// A server that reads a body for longer than the time-out of a try.
const slow = createServer(async (request, response) => {
  await new Promise((resolve) => setTimeout(resolve, 400));
  response.setHeader("Connection", "close"); // Node would wait for the connection's next call, with a timer.
  request.on("error", () => undefined).on("end", () => response.end("{}")).resume();
});
await new Promise((resolve) => slow.listen(0, "127.0.0.1", resolve));
const uplink = client({ baseUrl: `http://127.0.0.1:${slow.address().port}`, timeout: 200 });
seen.uploads = [];
for (const bytes of [1000, 500_000]) {
  const row = { to: "+919876543210", type: "text", text: { body: "अ".repeat(bytes / 3) } };
  const sent = () => uplink.messages.sendBatch([row], { from: "1", clientRef: "news" });
  const uploaded = () => uplink.media.upload({ file: { name: "a.pdf", content: new Blob([new Uint8Array(bytes)]) }, from: "1" });
  for (const call of [sent, uploaded]) {
    const answered = await refused(call);
    seen.uploads.push(answered instanceof NoAnswer ? "timed out" : answered instanceof Error ? answered.message : "answered");
  }
}
slow.closeAllConnections();
slow.close();

const page = new Response("<h1>Log in</h1>", { headers: { "Content-Type": "text/html" } });
const another = await refused(() => client({ baseUrl: "https://gateway.example", fetch: async () => page }).tenant.get());
seen.another = [another instanceof WhabuzzError, another.message];

seen.keys = [];
for (const lost of [() => Response.json({}, { status: 503 }), () => Promise.reject(new TypeError("fetch failed"))]) {
  let key;
  const away = async (_, { headers }) => {
    key = headers["Idempotency-Key"];
    return lost();
  };
  const error = await refused(() => client({ fetch: away }).messages.send({ type: "text" }));
  seen.keys.push(key !== undefined && error.idempotencyKey === key);
}

const calls_made = [];
const counted = client({ maxRetries: 4, fetch: async (url) => (calls_made.push(url), Response.json({})) });
const inbound = { id: "evt_1", phone_number_id: "1", data: { message: { id: "wamid.1", from: "919876543210" } } };
seen.refusedKeys = [];
for (const key of ["विज़िट-1042", "", "two words", "x".repeat(256)]) {
  const error = await refused(() => counted.messages.send({ type: "text" }, { idempotencyKey: key }));
  seen.refusedKeys.push(error.constructor === WhabuzzError && error.message);
}
const named = await refused(() => counted.messages.reply(inbound, "text", { name: "दूसरा" }));
seen.refusedKeys.push(named.constructor === WhabuzzError && named.message, calls_made.length);

const wait = globalThis.setTimeout;
let pauses = [];
globalThis.setTimeout = (done, milliseconds) => {
  const isPause = milliseconds < LONG && milliseconds !== 45_000;
  if (isPause) pauses.push(milliseconds);
  return wait(done, isPause ? 0 : milliseconds);
};
const closed = (reason) => new Response(`event: closed\ndata: ${reason}\n\n`, { headers: { "Content-Type": "text/event-stream" } });
const error = (status, headers) => Response.json({}, { status, headers });
seen.streams = [];
for (const answers of [
  [error(429, { "Retry-After": "25" }), error(503, { "Retry-After": "0" }), error(520), closed("stopping"), closed("failed")],
  [error(404)],
]) {
  pauses = [];
  const stream = client({ fetch: async () => answers.shift() }).events.listen();
  const ended = await refused(async () => {
    for await (const _ of stream);
  });
  seen.streams.push([pauses, ended instanceof StreamEnded, ended instanceof APIError]);
}

// As in Cloudflare Workers, which refuse every other value of `redirect` before they send anything.
const asked = [];
const inAWorker = async (_, { redirect }) => {
  asked.push(redirect);
  if (!["follow", "manual"].includes(redirect)) throw new TypeError("Invalid redirect value");
  return new Response(null, { status: 301, headers: { Location: "https://other.example/" } });
};
const worker = client({ fetch: inAWorker });
const first = async (stream) => {
  for await (const streamed of stream) return streamed;
};
const elsewhere = [await refused(() => worker.tenant.get()), await refused(() => first(worker.events.listen({ signal: AbortSignal.timeout(5000) })))];
seen.elsewhere = [asked, elsewhere.map((each) => each.message)];
console.log(JSON.stringify(seen));
