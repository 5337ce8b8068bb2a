// Every call of public Node libraries for the Cloud API, made once with the unmodified library.
//
// `test_cloud_api_calls.py` runs it with the library's name as argument. Each call is a line of JSON on standard
// output, with its name and the reason of a failure. A name that begins with `-` is a step that is not counted.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { GATEWAY, KEY, PHONE, ACCOUNT, CUSTOMER, RECEIVED, MEDIA, PICTURE, EDITED } = process.env;
const TEMPLATE = "hello_world", LANGUAGE = "en_US", VERSION = "v25.0", LINK = "https://shop.example/a.jpg";
const NAME = { formatted_name: "Asha R", first_name: "Asha", last_name: "R" };
const BUTTON = { id: "yes", title: "Yes" }, ROW = { id: "one", title: "One", description: "The first" };
const BODY = { type: "BODY", text: "Hello there." };
const FLOW_JSON = { version: "7.2", screens: [] };
const require = createRequire(import.meta.url);

const write = process.stdout.write.bind(process.stdout);
// Standard output is for the report, so the log lines of libraries go elsewhere.
console.log = console.info = (...words) => console.error(...words);

const file = () => new Blob([readFileSync(PICTURE)], { type: "image/jpeg" });
const kept = {};

const libraries = {
  async *"@kapso/whatsapp-cloud-api"() {
    const { WhatsAppClient } = await import("@kapso/whatsapp-cloud-api");
    const client = new WhatsAppClient({ accessToken: KEY, baseUrl: GATEWAY, graphVersion: VERSION });
    const { messages, media, templates, phoneNumbers, calls, flows } = client;
    const phoneNumberId = PHONE, businessAccountId = ACCOUNT, wabaId = ACCOUNT, bodyText = "Hello";
    const send = (name, content) => [
      `messages.send${name}`,
      () => messages[`send${name}`]({ phoneNumberId, to: CUSTOMER, ...content }),
    ];
    yield send("Text", { body: "Hello" });
    for (const kind of ["Image", "Audio", "Video", "Document", "Sticker"])
      yield send(kind, { [kind.toLowerCase()]: { link: LINK } });
    yield send("Location", { location: { latitude: 28.6, longitude: 77.2, name: "Shop", address: "Street 1" } });
    yield send("Contacts", { contacts: [{ name: { formattedName: "Asha R", firstName: "Asha" } }] });
    yield send("Template", { template: { name: TEMPLATE, language: { code: LANGUAGE } } });
    yield send("Reaction", { reaction: { messageId: RECEIVED, emoji: "👍" } });
    yield send("InteractiveButtons", { bodyText, buttons: [BUTTON] });
    yield send("InteractiveList", { bodyText, buttonText: "Open", sections: [{ title: "All", rows: [ROW] }] });
    yield send("InteractiveProduct", { bodyText, catalogId: "1", productRetailerId: "2" });
    const header = { type: "text", text: "Shop" }, items = [{ productRetailerId: "2" }];
    yield send("InteractiveProductList", {
      bodyText, header, catalogId: "1", sections: [{ title: "All", productItems: items }],
    });
    yield send("InteractiveFlow", { bodyText, parameters: { flowId: "1", flowCta: "Book" } });
    yield send("InteractiveAddress", { bodyText, parameters: { country: "IN" } });
    yield send("InteractiveLocationRequest", { bodyText, parameters: { requestMessage: "Where?" } });
    yield send("InteractiveCallPermission", { bodyText, parameters: { phoneNumber: CUSTOMER } });
    const action = { displayText: "Open", url: LINK };
    yield send("InteractiveCtaUrl", { bodyText, parameters: action });
    const card = (cardIndex) => ({ cardIndex, header: { type: "image", image: { link: LINK } }, action });
    yield send("InteractiveCarousel", { bodyText, cards: [card(0), card(1)] });
    yield send("InteractiveCatalogMessage", { bodyText });
    const raw = { type: "location_request_message", body: { text: "Where?" }, action: { name: "send_location" } };
    yield send("InteractiveRaw", { interactive: raw });
    const text = { messaging_product: "whatsapp", to: CUSTOMER, type: "text", text: { body: "Hello" } };
    yield ["messages.sendRaw", () => messages.sendRaw({ phoneNumberId, payload: text })];
    yield ["messages.markRead", () => messages.markRead({ phoneNumberId, messageId: RECEIVED })];
    const picture = { phoneNumberId, type: "image", file: file(), fileName: "a.jpg" };
    yield ["media.upload", async () => (kept.media = (await media.upload(picture)).id)];
    yield ["media.get", () => media.get({ mediaId: MEDIA, phoneNumberId })];
    yield ["media.download", () => media.download({ mediaId: MEDIA, phoneNumberId, auth: "always" })];
    yield ["media.delete", () => media.delete({ mediaId: kept.media, phoneNumberId })];
    const name = "greeting_kapso_js";
    const greeting = { businessAccountId, name, language: LANGUAGE, category: "UTILITY", components: [BODY] };
    yield ["templates.create", async () => (kept.template = (await templates.create(greeting)).id)];
    yield ["templates.list", () => templates.list({ businessAccountId })];
    yield ["templates.get", () => templates.get({ businessAccountId, templateId: kept.template })];
    yield ["templates.delete", () => templates.delete({ businessAccountId, name })];
    yield ["settings.get", () => phoneNumbers.settings.get({ phoneNumberId })];
    const storage = { fallbackLanguage: "en" };
    yield ["settings.update", () => phoneNumbers.settings.update({ phoneNumberId, ...storage })];
    yield ["businessProfile.get", () => phoneNumbers.businessProfile.get({ phoneNumberId })];
    yield ["businessProfile.update", () => phoneNumbers.businessProfile.update({ phoneNumberId, about: "Open" })];
    const offer = { sdpType: "offer", sdp: "v=0" }, answer = { sdpType: "answer", sdp: "v=0" };
    const call = async () =>
      (kept.call = (await calls.connect({ phoneNumberId, to: CUSTOMER, session: offer })).calls[0].id);
    const ofCall = (more = {}) => ({ phoneNumberId, callId: kept.call, ...more });
    yield ["calls.permissions.get", () => calls.permissions.get({ phoneNumberId, userWaId: CUSTOMER })];
    yield ["calls.connect", call];
    yield ["calls.preAccept", () => calls.preAccept(ofCall({ session: answer }))];
    yield ["calls.accept", () => calls.accept(ofCall({ session: answer }))];
    yield ["calls.terminate", () => calls.terminate(ofCall())];
    yield ["-call", call];
    yield ["calls.reject", () => calls.reject(ofCall())];
    const booking = { wabaId, name: "booking_kapso_js", categories: ["OTHER"], flowJson: FLOW_JSON };
    yield ["flows.create", async () => (kept.flow = (await flows.create(booking)).id)];
    yield ["flows.list", () => flows.list({ wabaId })];
    yield ["flows.get", () => flows.get({ flowId: kept.flow })];
    yield ["flows.updateAsset", () => flows.updateAsset({ flowId: kept.flow, json: FLOW_JSON })];
    yield ["flows.preview", () => flows.preview({ flowId: kept.flow })];
    yield ["flows.publish", () => flows.publish({ flowId: kept.flow })];
    yield ["flows.deprecate", () => flows.deprecate({ flowId: kept.flow })];
    yield ["flows.deploy", () => flows.deploy(FLOW_JSON, { name: "deployed_kapso_js", wabaId, categories: ["OTHER"] })];
  },

  async *"@great-detail/whatsapp"() {
    const { Client } = await import("@great-detail/whatsapp");
    const request = { headers: { Authorization: `Bearer ${KEY}` } };
    const client = new Client({ prefixUrl: GATEWAY, graphVersion: VERSION, request });
    const { businessProfile, media, message, phoneNumbers, subscribedApps, template } = client;
    const phoneNumberID = PHONE, businessAccountID = ACCOUNT;
    const send = (type, content) => [
      `message.${type}`,
      () => message.createMessage({ phoneNumberID, to: CUSTOMER, type, [type]: content }).json(),
    ];
    yield send("text", { body: "Hello" });
    for (const kind of ["image", "audio", "video", "document", "sticker"]) yield send(kind, { link: LINK });
    yield send("location", { latitude: 28.6, longitude: 77.2, name: "Shop", address: "Street 1" });
    yield send("contacts", [{ name: NAME }]);
    yield send("reaction", { message_id: RECEIVED, emoji: "👍" });
    yield send("template", { name: TEMPLATE, language: { code: LANGUAGE } });
    const buttons = [{ type: "reply", reply: BUTTON }];
    yield send("interactive", { type: "button", body: { text: "Ok?" }, action: { buttons } });
    const read = { phoneNumberID, message_id: RECEIVED, status: "read" };
    yield ["message.createStatus", () => message.createStatus(read).json()];
    const picture = { phoneNumberID, mimeType: "image/jpeg", filename: "a.jpg", file: file() };
    yield ["media.upload", async () => (kept.media = (await media.upload(picture).json()).id)];
    const url = async () => (kept.url = (await media.getURL({ mediaID: MEDIA, phoneNumberID }).json()).url);
    yield ["media.getURL", url];
    yield ["media.download", async () => (await media.download({ mediaURL: kept.url, request })).arrayBuffer()];
    yield ["media.delete", () => media.delete({ mediaID: kept.media, phoneNumberID }).json()];
    yield ["businessProfile.get", () => businessProfile.getBusinessProfile({ phoneNumberID, fields: ["about"] }).json()];
    yield ["businessProfile.update", () => businessProfile.updateBusinessProfile({ phoneNumberID, about: "Open" }).json()];
    yield ["phoneNumbers.get", () => phoneNumbers.getPhoneNumber({ phoneNumberID }).json()];
    yield ["phoneNumbers.list", () => phoneNumbers.listPhoneNumbers({ businessAccountID }).json()];
    const renamed = { phoneNumberID, new_display_name: "Asha Traders" };
    yield ["phoneNumbers.update", () => phoneNumbers.updatePhoneNumber(renamed).json()];
    yield ["subscribedApps.create", () => subscribedApps.createSubscription({ businessAccountID }).json()];
    yield ["subscribedApps.list", () => subscribedApps.listSubscriptions({ businessAccountID }).json()];
    const greeting = { name: "greeting_detail", language: LANGUAGE, category: "UTILITY", components: [BODY] };
    yield ["template.create", async () => (kept.template = (await template.create(ACCOUNT, greeting).json()).id)];
    yield ["template.get", () => template.get(kept.template, {}).json()];
    yield ["template.list", () => template.list(ACCOUNT, {}).json()];
    yield ["template.listLibrary", () => template.listLibrary({}).json()];
    yield ["template.update", () => template.update(EDITED, { components: [BODY] }).json()];
    yield ["template.delete", () => template.delete(ACCOUNT, { name: "greeting_detail" }).json()];
    yield ["whatsappBusinessAccount.get", () => client.whatsappBusinessAccount.get(ACCOUNT).json()];
  },

  async *"whatsapp-api-js"() {
    const { WhatsAppAPI } = await import("whatsapp-api-js");
    const messages = await import("whatsapp-api-js/messages");
    const graph = (url, options) => fetch(String(url).replace("https://graph.facebook.com", GATEWAY), options);
    const client = new WhatsAppAPI({ token: KEY, secure: false, v: VERSION, ponyfill: { fetch: graph } });
    const send = (name, content) => [name, () => client.sendMessage(PHONE, CUSTOMER, content)];
    const { Body, ActionButtons, Button, ActionList, ListSection, Row, ActionCTA, ActionLocation } = messages;
    const interactive = (action) => new messages.Interactive(action, new Body("Hello"));
    yield send("Text", new messages.Text("Hello"));
    for (const kind of ["Image", "Audio", "Video", "Document", "Sticker"]) yield send(kind, new messages[kind](LINK));
    yield send("Location", new messages.Location(77.2, 28.6, "Shop", "Street 1"));
    yield send("Contacts", new messages.Contacts([new messages.Name("Asha R", "Asha")]));
    yield send("Reaction", new messages.Reaction(RECEIVED, "👍"));
    yield send("Template", new messages.Template(TEMPLATE, new messages.Language(LANGUAGE)));
    yield send("ActionButtons", interactive(new ActionButtons(new Button("yes", "Yes"))));
    yield send("ActionList", interactive(new ActionList("Open", new ListSection("All", new Row("one", "One")))));
    yield send("ActionCTA", interactive(new ActionCTA("Open", LINK)));
    yield send("ActionLocation", interactive(new ActionLocation()));
    yield ["broadcastMessage", () => Promise.all(client.broadcastMessage(PHONE, [CUSTOMER], new messages.Text("Hi"), 1, 1))];
    yield ["markAsRead", () => client.markAsRead(PHONE, RECEIVED, "text")];
    const call = async () => (kept.call = (await client.initiateCall(PHONE, CUSTOMER, "v=0")).calls[0].id);
    yield ["initiateCall", call];
    yield ["preacceptCall", () => client.preacceptCall(PHONE, kept.call, "v=0")];
    yield ["acceptCall", () => client.acceptCall(PHONE, kept.call, "v=0")];
    yield ["terminateCall", () => client.terminateCall(PHONE, kept.call)];
    yield ["-call", call];
    yield ["rejectCall", () => client.rejectCall(PHONE, kept.call)];
    yield ["createQR", async () => (kept.code = (await client.createQR(PHONE, "Hello")).code)];
    yield ["retrieveQR", () => client.retrieveQR(PHONE, kept.code)];
    yield ["updateQR", () => client.updateQR(PHONE, kept.code, "Bye")];
    yield ["deleteQR", () => client.deleteQR(PHONE, kept.code)];
    const form = new FormData();
    form.set("file", file(), "a.jpg");
    yield ["uploadMedia", async () => (kept.media = (await client.uploadMedia(PHONE, form)).id)];
    yield ["retrieveMedia", async () => (kept.url = (await client.retrieveMedia(MEDIA, PHONE)).url)];
    yield ["fetchMedia", () => client.fetchMedia(kept.url)];
    yield ["deleteMedia", () => client.deleteMedia(kept.media, PHONE)];
    const blocked = CUSTOMER.slice(0, -1) + "0";
    yield ["blockUser", () => client.blockUser(PHONE, blocked)];
    yield ["unblockUser", () => client.unblockUser(PHONE, blocked)];
  },

  async *whatsapp() {
    Object.assign(process.env, {
      WA_BASE_URL: "gateway.example",
      M4D_APP_ID: "1",
      M4D_APP_SECRET: "secret",
      WA_PHONE_NUMBER_ID: PHONE,
      WA_BUSINESS_ACCOUNT_ID: ACCOUNT,
      CLOUD_API_ACCESS_TOKEN: KEY,
      CLOUD_API_VERSION: VERSION,
      WEBHOOK_VERIFICATION_TOKEN: "open sesame",
    });
    const WhatsApp = require("whatsapp");
    const client = new WhatsApp(PHONE);
    const answered = async (call) => ({ status: (await call).statusCode() });
    const send = (kind, content) => [`messages.${kind}`, () => answered(client.messages[kind](content, CUSTOMER))];
    yield send("text", { body: "Hello" });
    for (const kind of ["image", "audio", "video", "document", "sticker"]) yield send(kind, { link: LINK });
    yield send("location", { latitude: 28.6, longitude: 77.2, name: "Shop", address: "Street 1" });
    yield send("contacts", [{ name: NAME }]);
    yield send("template", { name: TEMPLATE, language: { code: LANGUAGE } });
    const action = { buttons: [{ type: "reply", reply: BUTTON }] };
    yield send("interactive", { type: "button", body: { text: "Ok?" }, action });
    yield ["messages.status", () => answered(client.messages.status({ status: "read", message_id: RECEIVED }))];
  },

  async *"whatsapp-business"() {
    const { WABAClient } = require("whatsapp-business");
    const client = new WABAClient({ apiToken: KEY, phoneId: PHONE, accountId: ACCOUNT });
    const send = (type, content) => [
      `sendMessage.${type}`,
      () => client.sendMessage({ to: CUSTOMER, type, [type]: content }),
    ];
    yield send("text", { body: "Hello" });
    for (const kind of ["image", "audio", "video", "document", "sticker"]) yield send(kind, { link: LINK });
    yield send("location", { latitude: 28.6, longitude: 77.2 });
    yield send("contacts", [{ name: NAME }]);
    yield send("reaction", { message_id: RECEIVED, emoji: "👍" });
    yield send("template", { name: TEMPLATE, language: { code: LANGUAGE } });
    const action = { buttons: [{ type: "reply", reply: BUTTON }] };
    yield send("interactive", { type: "button", body: { text: "Ok?" }, action });
    yield ["markMessageAsRead", () => client.markMessageAsRead(RECEIVED)];
    yield ["uploadMedia", async () => (kept.media = (await client.uploadMedia({ file: PICTURE, type: "image/jpeg" })).id)];
    yield ["getMedia", async () => (kept.url = (await client.getMedia(MEDIA)).url)];
    yield ["downloadMedia", () => client.downloadMedia(kept.url, `${PICTURE}.business`)];
    yield ["deleteMedia", () => client.deleteMedia(kept.media)];
    yield ["getBusinessProfile", () => client.getBusinessProfile(["about"])];
    yield ["updateBusinessProfile", () => client.updateBusinessProfile({ about: "Open" })];
    yield ["getBusinessPhoneNumbers", () => client.getBusinessPhoneNumbers()];
    yield ["getSingleBusinessPhoneNumber", () => client.getSingleBusinessPhoneNumber(PHONE)];
    yield ["updateIdentityCheckState", () => client.updateIdentityCheckState({ enable_identity_key_check: false })];
  },

  async *"whatsapp-cloud-api"() {
    const { createBot } = require("whatsapp-cloud-api");
    const bot = createBot(PHONE, KEY, { version: VERSION });
    yield ["sendText", () => bot.sendText(CUSTOMER, "Hello")];
    yield ["sendMessage", () => bot.sendMessage(CUSTOMER, "Hello")];
    for (const kind of ["Image", "Document", "Audio", "Video", "Sticker"])
      yield [`send${kind}`, () => bot[`send${kind}`](CUSTOMER, LINK)];
    yield ["sendLocation", () => bot.sendLocation(CUSTOMER, 28.6, 77.2)];
    yield ["sendTemplate", () => bot.sendTemplate(CUSTOMER, TEMPLATE, LANGUAGE)];
    yield ["sendContacts", () => bot.sendContacts(CUSTOMER, [{ name: NAME }])];
    yield ["sendReplyButtons", () => bot.sendReplyButtons(CUSTOMER, "Ok?", { yes: "Yes" })];
    yield ["sendList", () => bot.sendList(CUSTOMER, "Open", "Pick", { All: [ROW] })];
  },

  async *whatsappcloudapi_wrapper() {
    const WhatsappCloud = require("whatsappcloudapi_wrapper");
    const settings = { accessToken: KEY, graphAPIVersion: VERSION, senderPhoneNumberId: PHONE, WABA_ID: ACCOUNT };
    const client = new WhatsappCloud(settings), to = { recipientPhone: CUSTOMER };
    client.baseUrl = `${GATEWAY}/${VERSION}/${PHONE}`;
    yield ["sendText", () => client.sendText({ ...to, message: "Hello" })];
    const template = { templateName: TEMPLATE, languageCode: LANGUAGE, components: [] };
    yield ["sendTemplate", () => client.sendTemplate({ ...to, ...template })];
    yield ["markMessageAsRead", () => client.markMessageAsRead({ message_id: RECEIVED })];
    yield ["sendSimpleButtons", () => client.sendSimpleButtons({ ...to, message: "Ok?", listOfButtons: [BUTTON] })];
    const list = { headerText: "Shop", bodyText: "Pick", footerText: "Thanks", listOfSections: [{ title: "All", rows: [ROW] }] };
    yield ["sendRadioButtons", () => client.sendRadioButtons({ ...to, ...list })];
    yield ["sendImage", () => client.sendImage({ ...to, url: LINK })];
    const file = { file_path: PICTURE, file_name: "a.jpg", mime_type: "image/jpeg" };
    yield ["preUploadMedia", () => client.preUploadMedia(file)];
    yield ["sendImage of a file", () => client.sendImage({ ...to, ...file })];
    yield ["sendVideo", () => client.sendVideo({ ...to, url: LINK })];
    yield ["sendAudio", () => client.sendAudio({ ...to, url: LINK })];
    yield ["sendDocument", () => client.sendDocument({ ...to, url: LINK, caption: "Bill" })];
    const place = { latitude: 28.6, longitude: 77.2, name: "Shop", address: "Street 1" };
    yield ["sendLocation", () => client.sendLocation({ ...to, ...place })];
    const phones = [{ phone: `+${CUSTOMER}`, type: "CELL" }];
    yield ["sendContact", () => client.sendContact({ ...to, contact_profile: { name: NAME, phones } })];
    yield ["createQRCodeMessage", () => client.createQRCodeMessage({ message: "Hello" })];
  },

  async *"@chat-adapter/whatsapp"() {
    const { createWhatsAppAdapter } = await import("@chat-adapter/whatsapp");
    const adapter = createWhatsAppAdapter({
      accessToken: KEY, apiUrl: GATEWAY, apiVersion: VERSION, appSecret: "secret", phoneNumberId: PHONE,
      verifyToken: "open sesame",
    });
    const thread = adapter.encodeThreadId({ phoneNumberId: PHONE, userWaId: CUSTOMER });
    yield ["postMessage", () => adapter.postMessage(thread, "Hello")];
    yield ["reply", () => adapter.reply(thread, RECEIVED, "Hello")];
    const files = [{ data: readFileSync(PICTURE), filename: "a.jpg", mimeType: "image/jpeg" }];
    yield ["postMessage with a file", () => adapter.postMessage(thread, { markdown: "Hello", files })];
    const words = async function* () { yield "Hel"; yield "lo"; };
    yield ["stream", () => adapter.stream(thread, words())];
    yield ["sendTemplate", () => adapter.sendTemplate(thread, { name: TEMPLATE, language: LANGUAGE })];
    yield ["addReaction", () => adapter.addReaction(thread, RECEIVED, "thumbs_up")];
    yield ["removeReaction", () => adapter.removeReaction(thread, RECEIVED, "thumbs_up")];
    yield ["markAsRead", () => adapter.markAsRead(RECEIVED)];
    yield ["downloadMedia", () => adapter.downloadMedia(MEDIA)];
  },

  async *"@microfox/whatsapp-business"() {
    const { WhatsAppBusinessSDK } = await import("@microfox/whatsapp-business");
    process.env.WHATSAPP_WEBHOOK_URL = "https://shop.example/webhook";
    const settings = { phoneNumberId: PHONE, businessAccountId: ACCOUNT, accessToken: KEY, baseUrl: `${GATEWAY}/${VERSION}` };
    const client = new WhatsAppBusinessSDK(settings);
    const send = (name, ...content) => [name, () => client[name](CUSTOMER, ...content)];
    yield send("sendTextMessage", "Hello");
    for (const kind of ["Image", "Video", "Document", "Audio", "Sticker"])
      yield send(`send${kind}Message`, { link: LINK });
    yield send("sendLocationMessage", { latitude: 28.6, longitude: 77.2, name: "Shop", address: "Street 1" });
    yield send("sendContactMessage", [{ name: NAME, phones: [{ phone: `+${CUSTOMER}`, type: "CELL" }] }]);
    const action = { buttons: [{ type: "reply", reply: BUTTON }] };
    yield send("sendInteractiveMessage", { type: "button", body: { text: "Ok?" }, action });
    yield send("sendInteractiveCtaMessage", "See", LINK);
    yield send("sendLocationRequestMessage", "Where?");
    yield send("sendTemplateMessage", TEMPLATE, LANGUAGE);
    yield send("sendReaction", RECEIVED, "👍");
    yield send("sendReply", "text", "Hello", RECEIVED);
    const parameters = { flow_id: "1", flow_cta: "Book" };
    const flow = { id: "1", token: "t", header: { type: "text", text: "Shop" }, body: { text: "Book" }, footer: { text: "Thanks" } };
    yield send("sendFlowMessage", { ...flow, parameters });
    yield ["sendTypingIndicator", () => client.sendTypingIndicator({ messageId: RECEIVED })];
    yield ["markMessageAsRead", () => client.markMessageAsRead(RECEIVED)];
    yield ["markMessagesAsRead", () => client.markMessagesAsRead([RECEIVED])];
    yield ["uploadMedia", () => client.uploadMedia(file(), "image")];
    yield ["getMediaUrl", () => client.getMediaUrl(MEDIA)];
    yield ["downloadMedia", () => client.downloadMedia(MEDIA)];
    yield ["getBusinessProfile", () => client.getBusinessProfile()];
    yield ["updateBusinessProfile", () => client.updateBusinessProfile({ about: "Open" })];
    yield ["getTemplates", () => client.getTemplates()];
    const greeting = { name: "greeting_microfox", language: LANGUAGE, category: "UTILITY" };
    const empty = [{ type: "body", parameters: [] }];
    yield ["createTemplate", () => client.createTemplate({ ...greeting, components: empty })];
    const made = { ...greeting, components: [BODY] }, path = `${settings.baseUrl}/${ACCOUNT}/message_templates`;
    const headers = { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" };
    yield ["-template", () => fetch(path, { method: "POST", headers, body: JSON.stringify(made) })];
    yield ["deleteTemplate", () => client.deleteTemplate(greeting.name)];
    yield ["getQRCode", () => client.getQRCode()];
    yield ["getPhoneNumbers", () => client.getPhoneNumbers()];
    yield ["getAnalytics", () => client.getAnalytics()];
    yield ["getCommerceSettings", () => client.getCommerceSettings()];
    const shown = { is_catalog_visible: true, is_cart_enabled: true };
    yield ["updateCommerceSettings", () => client.updateCommerceSettings(shown)];
    const automation = { enable_welcome_message: true, prompts: ["Hi"] };
    yield ["configureConversationalComponents", () => client.configureConversationalComponents(automation)];
    yield ["getConversationalComponents", () => client.getConversationalComponents()];
  },
};

// The failure in a response. Some libraries return it instead of throwing.
const problem = (answer) => {
  if (Array.isArray(answer)) return problem(answer[0]);
  if (answer?.error) return JSON.stringify(answer.error);
  if (answer?.status === "failed" || answer?.status >= 400) return `status ${answer.status}`;
  return null;
};

for await (const [name, make] of libraries[process.argv[2]]()) {
  let error;
  try {
    error = problem(await make());
  } catch (caught) {
    error = caught instanceof Error ? `${caught.name}: ${caught.message}` : JSON.stringify(caught);
  }
  if (!name.startsWith("-")) write(JSON.stringify({ call: name, error: error && error.slice(0, 300) }) + "\n");
}
process.exit(0);
