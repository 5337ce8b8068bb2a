// Makes each kind of call once for each answer, and prints the idempotency keys of all tries as JSON. Run by
// tests/e2e/sdks/test_typescript_sdk.py.
import { Whabuzz } from "whabuzz";

const wait = globalThis.setTimeout;
const TIMEOUT = 3_600_000;
// The pauses between tries are skipped. The time-outs of the tries are not.
globalThis.setTimeout = (done, milliseconds) => wait(done, milliseconds === TIMEOUT ? milliseconds : 0);

const { answers, calls } = JSON.parse(process.argv[2]);
const seen = [];
for (const first of answers) {
  const tries = {};
  for (const [kind, { key, body }] of Object.entries(calls)) {
    tries[kind] = [];
    const answer = async (_, { headers }) => {
      const isFirst = tries[kind].push(headers["Idempotency-Key"] ?? null) === 1;
      if (isFirst && first === null) throw new TypeError("fetch failed");
      return isFirst ? Response.json(first.body, { status: first.status, headers: first.headers }) : Response.json({ messages: [] });
    };
    const client = new Whabuzz({ apiKey: "wb_test_x", baseUrl: "https://gateway.example", fetch: answer, timeout: TIMEOUT });
    const send = {
      read: () => client.tenant.get(),
      keyed: () => client.messages.send({ type: "text" }, { idempotencyKey: key }),
      named: () => client.messages.createBatch(body),
      unnamed: () => client.messages.createBatch(body),
      other: () => client.webhooks.create({ url: "https://shop.example" }),
    };
    await send[kind]().catch(() => undefined);
  }
  seen.push(tries);
}
console.log(JSON.stringify(seen));
