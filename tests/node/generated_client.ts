// A client of openapi-typescript's types and openapi-fetch against a running service. Run by
// tests/e2e/test_contract_tools.py.
import createClient from "openapi-fetch";
import type { components, paths } from "./contract.js";

const client = createClient<paths>({
  baseUrl: process.env.BASE_URL!,
  headers: { Authorization: `Bearer ${process.env.API_KEY}` },
});
const from = process.env.FROM!;
const message: components["schemas"]["OutgoingMessage"] = {
  from,
  to: "+917000900052",
  type: "text",
  text: { body: "Hello" },
};
const sent = await client.POST("/v1/messages", { body: message });
if (sent.error) throw new Error(JSON.stringify(sent.error));

const form = new FormData();
form.append("from", from);
form.append("file", new Blob([new Uint8Array([255, 216, 255])], { type: "image/jpeg" }), "photo.jpg");
const media = await client.POST("/v1/media", {
  body: { from, file: "" },
  bodySerializer: () => form,
});
if (media.error) throw new Error(JSON.stringify(media.error));

const pages = new Set<string>();
let cursor: string | undefined;
for (let page = 0; page < 2; page++) {
  const listed = await client.GET("/v1/events", { params: { query: { limit: 1, ...(cursor ? { cursor } : {}) } } });
  if (listed.error) throw new Error(JSON.stringify(listed.error));
  for (const event of listed.data.data) pages.add(event.id);
  cursor = listed.data.next_cursor ?? undefined;
}

const refused = await client.POST("/v1/messages", { body: { ...message, from: "nobody" } });
const error = refused.error as components["schemas"]["ServiceError"];
console.log(
  JSON.stringify({
    wamid: sent.data.messages[0]!.id,
    media: media.data.id,
    pages: pages.size,
    refused: error.error.code,
  }),
);
