// The customer's phone: the chats of one business number, updated by server-sent events. It sends to /sim/inbound.
import { api, clock, el, find, show } from "/static/dom.js";
import { content, gist } from "/static/bubbles.js";

const log = find("#log");
const number = find("#number");
const problem = find("#problem");
const EMOJIS = ["👍", "❤️", "😂", "😮", "🙏"];
const TICKS = { accepted: ["◷", "waiting"], sent: ["✓", "sent"], delivered: ["✓✓", "delivered"], read: ["✓✓", "read"], failed: ["!", "failed"] };
const KEPT = 200;
const GLANCE = 700; // milliseconds
let customer = null;
let pending = null; // a customer who has not written yet: {from, name, identity}
let quoting = null;
let messages = new Map();

function ticks(message) {
  const [sign, word] = TICKS[message.status] || TICKS.accepted;
  const style = { accepted: "waiting" }[message.status] || message.status;
  return el("span", { class: `ticks ${style}`, role: "img", "aria-label": word, title: word }, sign);
}

function bubble(message) {
  const mine = message.direction === "inbound";
  const kind = message.body.type;
  if (kind === "system") return el("li", { class: "note" }, message.body.system.body);
  const answer = (body) => send({ ...body, context: { id: message.id } });
  const quoted = message.body.context?.message_id || message.body.context?.id;
  const original = quoted && messages.get(quoted);
  return el("li", { class: mine ? "mine" : "theirs", "data-id": message.id },
    el("div", { class: "bubble" },
      quoted && el("div", { class: "quoted" }, original ? gist(original) : "an earlier message"),
      content(message, answer),
      message.error && el("p", { class: "error" }, `Not delivered: ${message.error.title} (${message.error.code})`),
      el("div", { class: "meta" }, tools(message, mine), el("time", {}, clock(message.timestamp)), mine ? null : ticks(message))),
    message.reaction && el("span", { class: "reaction", "aria-label": `Reaction ${message.reaction}` }, message.reaction));
}

function tools(message, mine) {
  const menu = el("details", { class: "tools" }, el("summary", { "aria-label": "Reply or react" }, "⋯"));
  const choice = (label, name, act) => el("button", {
    type: "button", "aria-label": name, onclick: () => { menu.open = false; act(); } }, label);
  menu.append(el("div", {},
    choice("Reply", "Reply", () => quote(message)),
    mine ? "" : EMOJIS.map((emoji) => choice(emoji, `React with ${emoji}`, () => react(message, emoji))),
    mine || !message.reaction ? "" : choice("×", "Take the reaction back", () => react(message, ""))));
  return menu;
}

const visible = (message) => message.body.type !== "reaction";

function draw() {
  log.replaceChildren(...[...messages.values()].filter(visible).map(bubble));
  if (!messages.size) log.append(el("li", { class: "note" }, "No messages yet"));
  log.scrollTop = log.scrollHeight;
}

function upsert(message) {
  const known = messages.has(message.id);
  messages.set(message.id, message);
  if (!visible(message)) return;
  const old = log.querySelector(`[data-id="${CSS.escape(message.id)}"]`);
  if (known && old) {
    // One of the bubble's buttons may have the focus while the bubble's ticks change.
    const focused = old.contains(document.activeElement) ? [...old.querySelectorAll("button, a, summary")].indexOf(document.activeElement) : -1;
    const open = old.querySelector(".rows")?.open;
    const fresh = bubble(message);
    old.replaceWith(fresh);
    if (open && fresh.querySelector(".rows")) fresh.querySelector(".rows").open = true;
    if (focused >= 0) fresh.querySelectorAll("button, a, summary")[focused]?.focus();
    return;
  }
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 120;
  log.querySelector(".note:only-child")?.remove();
  log.append(bubble(message));
  while (log.children.length > KEPT) log.firstElementChild.remove();
  if (atEnd || message.direction === "inbound") log.scrollTop = log.scrollHeight;
}

async function send(body) {
  const who = pending && pending.from === customer ? pending : { from: customer };
  try {
    await api("POST", "inbound", { phone_number_id: number.value, ...who, ...body });
    if (pending && pending.from === customer) pending = null;
    show(problem, null);
  } catch (error) { show(problem, error); }
}

function react(message, emoji) {
  send({ type: "reaction", reaction: emoji ? { message_id: message.id, emoji } : { message_id: message.id } });
}

function quote(message) {
  quoting = message;
  find("#quote").hidden = !message;
  find("#quote-text").textContent = message ? gist(message) : "";
  if (message) find("#text").focus();
}

const withContext = (body) => (quoting ? { ...body, context: { id: quoting.id } } : body);

async function opened() {
  if (customer && !document.hidden) await api("POST", "conversations/open", { phone_number_id: number.value, customer });
}

async function open(key, title) {
  customer = key;
  quote(null);
  find("#phone").classList.add("open");
  find("#composer").hidden = false;
  find("#with").textContent = number.selectedOptions[0]?.textContent || "";
  find("#as").textContent = `You are ${title}`;
  find("#typing").textContent = "";
  const listed = await api("GET", `messages?phone_number_id=${number.value}&customer=${encodeURIComponent(key)}&limit=${KEPT}`);
  messages = new Map(listed.data.reverse().map((message) => [message.id, message]));
  draw();
  await Promise.all([opened(), chats()]);
}

function title(chat) {
  const handle = chat.customer.includes(".") ? chat.customer : `+${chat.customer}`;
  return `${chat.contact.profile.name} (${handle})`;
}

async function chats() {
  const listed = number.value ? (await api("GET", `conversations?phone_number_id=${number.value}`)).data : [];
  find("#chats").replaceChildren(...listed.map((chat) => el("li", {}, el("button", {
    type: "button", "aria-current": String(chat.customer === customer), onclick: () => open(chat.customer, title(chat)) },
    el("strong", {}, chat.contact.profile.name), el("time", {}, clock(chat.last.timestamp)),
    el("span", { class: "last" }, gist(chat.last))))));
  if (!listed.length && !customer) find("#new").open = true;
  return listed;
}

async function numbers() {
  const accounts = (await api("GET", "accounts")).data;
  number.replaceChildren(...accounts.flatMap((account) => account.phone_numbers.map((one) =>
    el("option", { value: one.id }, `${one.verified_name} ${one.display_phone_number}`))));
  find("#no-number").hidden = number.options.length > 0;
  find("#new").hidden = number.options.length === 0;
  const wanted = new URLSearchParams(location.search);
  if (wanted.get("phone_number_id")) number.value = wanted.get("phone_number_id");
  const listed = await chats();
  const asked = listed.find((chat) => chat.customer === wanted.get("customer"));
  if (asked) await open(asked.customer, title(asked));
}

number.addEventListener("change", async () => {
  customer = null;
  messages = new Map();
  log.replaceChildren();
  find("#composer").hidden = true;
  find("#with").textContent = "Choose a chat";
  find("#as").textContent = "";
  await chats();
});

find("#back").addEventListener("click", () => { find("#phone").classList.remove("open"); customer = null; chats(); });
find("#unquote").addEventListener("click", () => quote(null));

find("#new-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const given = String(form.get("from")).trim();
  const key = given.includes(".") ? given : given.replace(/\D/g, "");
  if (!key) return;
  pending = { from: key, name: form.get("name") || undefined, identity: key.includes(".") ? undefined : form.get("identity") };
  find("#new").open = false;
  event.target.reset();
  await open(key, pending.name || (key.includes(".") ? key : `+${key}`));
  find("#text").focus();
});

find("#composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = find("#text");
  const body = field.value.trim();
  if (!body) return;
  field.value = "";
  const message = withContext({ type: "text", text: { body } });
  quote(null);
  await send(message);
});

find(".menu").addEventListener("click", async (event) => {
  const kind = event.target.dataset.kind;
  if (!kind) return;
  find("#attach").open = false;
  await send(withContext({ type: kind }));
  quote(null);
});

find("#file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  find("#attach").open = false;
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let start = 0; start < bytes.length; start += 0x8000) binary += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  const family = file.type.split("/")[0];
  const kind = ["image", "video", "audio"].includes(family) ? family : "document";
  const part = { data: btoa(binary), mime_type: file.type || "application/octet-stream" };
  if (kind === "document") part.filename = file.name;
  await send(withContext({ type: kind, [kind]: part }));
  event.target.value = "";
});

document.addEventListener("visibilitychange", opened);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { closeMenus(); quote(null); }
});
document.addEventListener("click", (event) => closeMenus(event.target.closest("details")));

function closeMenus(except = null) {
  for (const menu of document.querySelectorAll(".tools[open], .attach[open]")) if (menu !== except) menu.open = false;
}

let listing = null;
const later = () => { listing ??= setTimeout(() => { listing = null; chats(); }, 400); };
let typingUntil = null;

await numbers();
const events = new EventSource("/sim/messages/stream");
let connected = false;
events.addEventListener("open", () => { if (connected) location.reload(); connected = true; });
events.addEventListener("message", async (event) => {
  const change = JSON.parse(event.data);
  if (change.reload) { location.reload(); return; }
  const about = change.message || change.typing;
  if (about.phone_number_id !== number.value) return;
  if (change.typing) {
    if (about.customer !== customer) return;
    find("#typing").textContent = "typing…";
    clearTimeout(typingUntil);
    typingUntil = setTimeout(() => { find("#typing").textContent = ""; }, 25000);
    return;
  }
  if (about.customer === customer) {
    upsert(about);
    if (about.direction === "outbound") find("#typing").textContent = "";
    // Wait a moment, so that both grey ticks are visible before they turn blue.
    if (about.status === "delivered") setTimeout(opened, GLANCE);
  }
  later();
});
