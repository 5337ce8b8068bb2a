// Compiles: what the types of the SDK promise.
import { choiceOf, type OutgoingMessage, RateLimited, Whabuzz, WebhookVerifier } from "whabuzz";

const client = new Whabuzz({ apiKey: "key", baseUrl: "http://127.0.0.1" });
const message: OutgoingMessage = { from: "1", to: "2", type: "text", text: { body: "x" }, unknown_member: [1] };
const wamid: string = (await client.messages.send(message)).messages[0]!.id;
const event = await new WebhookVerifier("whsec_").verify("", {});
if (event.type === "message.inbound") {
  const kind: string = event.data.message.type;
  const chosen: string | undefined = choiceOf(event)?.title;
  await client.media.get(chosen ?? "", { from: event.phone_number_id });
  await client.messages.reply(event, kind);
  if (event.data.message.type === "text") console.log(event.data.message.text.body.length);
  if (event.data.message.type === "image") console.log(event.data.message.image.id.length);
} else if (event.type === "message.status") {
  const state: string = event.data.status.status;
  console.log(state, wamid);
}
// What has a default may be left out.
await client.webhooks.create({ url: "https://shop.example/hook", event_types: ["message.inbound"], status: "pending" });
await client.webhooks.replay("1", { from: "2026-11-01T00:00:00Z", to: "2026-11-02T00:00:00Z" });
await client.webhooks.rotateSecret("1", {});
await client.tenants.create({ name: "Shop", external_ref: "1" });
for await (const { event: each } of client.events.listen()) if (each.type === "batch.completed") console.log(each.data.total);
const wait: number | undefined = new RateLimited(429, {}, new Headers({ "Retry-After": "9" })).retryAfter;
console.log(wait, (await client.events.list().page("c1")).nextCursor);
// @ts-expect-error: the member is called `body`.
export const wrong: OutgoingMessage = { from: "1", type: "text", text: { text: "x" } };
