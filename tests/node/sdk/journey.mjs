// Uses the installed TypeScript SDK against a running service; prints what it saw as JSON. Run by
// tests/e2e/sdks/test_typescript_sdk.py, in Node and, bundled, in an edge runtime.

import {
  APIError, BatchDiffers, InvalidSignature, NoAnswer, replyBody, StreamEnded, Whabuzz, WebhookVerifier,
} from "whabuzz";

export async function journey({ baseUrl, proxyUrl, apiKey, from, tag, signed }) {
  const client = new Whabuzz({ apiKey, baseUrl });
  const seen = {};
  const text = (to) => ({ from, to, type: "text", text: { body: "Hello" } });

  for (const place of [1, 2, 3]) await client.messages.send(text(`+9170009${tag}10${place}`));
  const ids = [];
  for await (const event of client.events.list({ type: "message.outbound", limit: 2 })) {
    ids.push(event.id);
    if (ids.length === 3) break;
  }
  seen.pages = new Set(ids).size;
  seen.firstPage = (await client.events.list({ limit: 2 }).firstPage()).length;

  const missed = [];
  for await (const { event } of client.events.listen({ type: "message.outbound", after: ids[2] })) {
    if (missed.push(event.id) === 2) break;
  }
  seen.missed = missed.join() === [ids[1], ids[0]].join();
  const places = [];
  const breaking = async (_, { headers }) => {
    const place = places.push(headers["Last-Event-ID"]);
    if (place === 2) return Response.json({}, { status: 503 });
    const ending = place === 3 ? "event: closed\ndata: unauthorized\n\n" : "id: cut\ndata: {";
    const sent = `retry: 1\nid: p${place}\r\ndata: {"id":\ndata: "evt_${place}"}\n\n${ending}`;
    return new Response(sent, { headers: { "Content-Type": "text/event-stream" } });
  };
  const heard = [];
  const stream = new Whabuzz({ apiKey, baseUrl, fetch: breaking }).events.listen();
  try {
    for await (const { event, place } of stream) heard.push([place, event.id]);
  } catch (error) {
    seen.ended = [error instanceof StreamEnded, heard, places, stream.place];
  }

  const file = new Blob([new Uint8Array([0xff, 0xd8, 0xff])], { type: "image/jpeg" });
  const uploaded = await client.media.upload({ file: { name: "a.jpg", content: file }, from });
  const download = await client.media.get(uploaded.id);
  seen.contentType = download.contentType;
  seen.bytes = [...(await download.bytes())];
  const streamed = (await client.media.get(uploaded.id)).stream.getReader();
  seen.streamed = (await streamed.read()).value.length;
  seen.described = (await client.media.describe(uploaded.id)).mime_type;

  async function* rows() {
    for (const place of [1, 2, 3]) yield { to: `+9170009${tag}20${place}`, type: "text", text: { body: "Hi" } };
  }
  const options = { from, clientRef: `sdk-typescript-${tag}`, size: 2 };
  const batches = await client.messages.sendBatch(rows(), options);
  const again = await client.messages.sendBatch(rows(), options);
  seen.batches = batches.map((batch) => batch.total);
  seen.sameBatches = again.every((batch, place) => batch.id === batches[place].id);
  const names = [];
  const answer = async (_, { body }) => {
    names.push(JSON.parse(body).client_ref);
    return Response.json({ id: "bat_1", same_messages: names.length === 1 });
  };
  const stub = new Whabuzz({ apiKey, baseUrl, fetch: answer });
  const row = { to: "+917000900001", type: "text", text: { body: "Hi" } };
  const differs = await stub.messages.sendBatch([row, row], { ...options, size: 1 }).catch((e) => e);
  seen.differs = [differs instanceof BatchDiffers, new Set(names).size];

  const long = { to: "+917000900001", type: "text", text: { body: "न".repeat(4 * 1024 * 1024) } };
  const counts = [];
  const counting = async (_, { body }) => {
    counts.push(JSON.parse(body).messages.length);
    return Response.json({ id: "bat_1" });
  };
  const counted = new Whabuzz({ apiKey, baseUrl, fetch: counting });
  await counted.messages.sendBatch([long, long, long], { from, clientRef: "long" });
  seen.cut = counts;

  const error = await client.messages.send({ to: "+917000900001", type: "text", text: { body: "x" } }).catch((e) => e);
  seen.error = [error instanceof APIError, error.status, error.code, Object.keys(error.details.fields), !!error.hint];

  const lossy = new Whabuzz({ apiKey, baseUrl: proxyUrl });
  seen.lossy = (await lossy.messages.send(text(`+9170009${tag}301`))).messages[0].id;
  seen.noAnswer = (await lossy.apiKeys.create({ name: `lost-${tag}` }).catch((e) => e)) instanceof NoAnswer;
  const mistaken = (options) => new Promise((done) => done(new Whabuzz({ apiKey, baseUrl, maxRetries: 0, ...options })));
  const said = (options) => mistaken(options).then((c) => c.tenant.get()).then((t) => typeof t.name, (e) => e.message);
  seen.fromAFile = await said({ apiKey: `${apiKey}\n` });
  seen.withVersion = await said({ baseUrl: `${baseUrl}/v1/` });
  seen.noScheme = await said({ baseUrl: "gateway.example" });
  seen.noKey = await said({ apiKey: "wb_test_\nx" });
  seen.away = await said({ baseUrl: "http://127.0.0.1:2" });
  seen.another = await said({ fetch: async () => new Response("<h1>Not here</h1>", { status: 404 }) });
  const stopped = await client.tenant.get({ signal: AbortSignal.abort(new Error("enough")) }).catch((e) => e.message);
  seen.stopped = stopped;

  const verifier = new WebhookVerifier(signed.secrets);
  seen.verified = (await verifier.verify(signed.body, signed.headers)).challenge;
  const consumer = new WebhookVerifier(signed.secrets, { toleranceSeconds: null });
  seen.late = (await consumer.verify(signed.body, signed.untimely[0])).challenge;
  seen.lines = (await consumer.verifyLines(signed.lines.body, signed.lines.headers)).map((each) => each.id);
  const refused = (make) => Promise.resolve().then(make).catch((e) => e.message);
  seen.noSecret = await Promise.all(
    ["", undefined, [], [""], "whsec_"].map((each) => refused(() => new WebhookVerifier(each).verify(signed.body, signed.headers))),
  );
  seen.parsedBody = await refused(() => verifier.verify(JSON.parse(signed.body), signed.headers));
  const forged = [
    [signed.body + " ", signed.headers],
    [signed.body, {}],
    [signed.body, { ...signed.headers, "webhook-id": "evt_2" }],
    [signed.body, { ...signed.headers, "webhook-timestamp": "1" }],
    ...signed.untimely.map((headers) => [signed.body, headers]),
    [signed.body, { ...signed.headers, "webhook-signature": "v1,%%% v1" }],
    [signed.lines.body, signed.lines.headers],
  ];
  seen.forged = [];
  for (const [body, headers] of forged) {
    seen.forged.push((await verifier.verify(body, headers).catch((e) => e)) instanceof InvalidSignature);
  }
  const event = { id: "evt_1", phone_number_id: "2003", user_id: "IN.1", data: { message: { id: "wamid.1" } } };
  seen.reply = replyBody(event, "Hi", true);
  seen.to = replyBody({ ...event, data: { message: { id: "wamid.1", from: "6581234567" } } }, "Hi").to;
  return seen;
}
