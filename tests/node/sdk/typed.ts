// Compiles: what the types of the SDK promise.
import { type OutgoingMessage, Whabuzz, WebhookVerifier } from "whabuzz";

const client = new Whabuzz({ apiKey: "key", baseUrl: "http://127.0.0.1" });
const message: OutgoingMessage = { from: "1", to: "2", type: "text", text: { body: "x" }, unknown_member: [1] };
const wamid: string = (await client.messages.send(message)).messages[0]!.id;
const event = await new WebhookVerifier("whsec_").verify("", {});
if (event.type === "message.inbound") {
  const kind: string = event.data.message.type;
  await client.messages.reply(event, kind);
} else if (event.type === "message.status") {
  const state: string = event.data.status.status;
  console.log(state, wamid);
}
// @ts-expect-error: the member is called `body`.
export const wrong: OutgoingMessage = { from: "1", type: "text", text: { text: "x" } };
