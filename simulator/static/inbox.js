import { api, clockWithSeconds, el, find, show } from "/static/dom.js";

const name = decodeURIComponent(location.pathname.split("/")[2]);
const path = `inboxes/${encodeURIComponent(name)}`;
const problem = find("#problem");
const list = find("#deliveries");
const type = find("#type");
const KEPT = 200;
const VERDICTS = {
  valid: ["badge good", "signature valid"], invalid: ["badge bad", "signature invalid"],
  stale: ["badge bad", "signature too old"], no_secret: ["badge", "no secret registered"],
};

document.title = `Inbox ${name}`;
find("#name").textContent = name;
find("#address").textContent = `${location.origin}/inbox/${encodeURIComponent(name)}`;

function pretty(body) {
  try { return JSON.stringify(JSON.parse(body), null, 2); } catch { return body; }
}

function count(label, value) {
  return el("div", {}, el("dt", {}, label), el("dd", {}, String(value)));
}

function summarise(inbox) {
  find("#counts").replaceChildren(
    count("deliveries", inbox.total), count("unique events", inbox.unique), count("accepted", inbox.accepted),
    count("repeated", inbox.duplicates), count("pings", inbox.pings));
  const signed = Object.entries(inbox.by_signature).map(([verdict, number]) => `${number} ${VERDICTS[verdict][1]}`);
  find("#secrets").textContent = [`${inbox.secrets} registered.`, ...signed].join(" · ");
  const mode = find("#mode");
  if (![...mode.options].some((option) => option.value === inbox.mode)) {
    mode.append(el("option", { value: inbox.mode }, inbox.mode));
  }
  mode.value = inbox.mode;
  find("#verify").value = inbox.verify;
  for (const kind of Object.keys(inbox.by_type)) addType(kind);
}

function addType(kind) {
  if (kind && ![...type.options].some((option) => option.value === kind)) type.append(el("option", { value: kind }, kind));
}

function row(delivery) {
  const [style, text] = VERDICTS[delivery.signature];
  const details = el("details", {},
    el("summary", {},
      el("time", { datetime: new Date(delivery.at * 1000).toISOString() }, clockWithSeconds(delivery.at)),
      el("strong", {}, delivery.event_type || "(no type)"),
      el("span", { class: style }, text),
      el("span", { class: "soft" }, delivery.status ? `answered ${delivery.status}` : "not answered")));
  // A delivery can be large, so its contents are built when it is opened.
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(inside(delivery));
  });
  return el("li", { "data-type": delivery.event_type }, details);
}

function inside(delivery) {
  return el("div", { class: "inside" },
    el("h3", {}, "Body"), el("pre", { tabindex: "0", "aria-label": "Body" }, pretty(delivery.body)),
    el("h3", {}, "Headers"), el("div", { class: "table" }, el("table", {}, el("tbody", {},
      Object.entries(delivery.headers).map(([header, value]) =>
        el("tr", {}, el("th", { scope: "row" }, header), el("td", {}, el("code", {}, value))))))));
}

function filter() {
  let shown = 0;
  for (const item of list.children) {
    item.hidden = Boolean(type.value) && item.dataset.type !== type.value;
    shown += !item.hidden;
  }
  find("#empty").hidden = shown > 0;
  find("#empty").textContent = list.children.length ? "None of this type." : "Nothing has arrived yet.";
}

async function load() {
  const inbox = await api("GET", `${path}?limit=${KEPT}`);
  summarise(inbox);
  list.replaceChildren(...inbox.deliveries.map(row));
  filter();
}

let waiting = null;
function soon() {
  waiting ??= setTimeout(async () => {
    waiting = null;
    summarise(await api("GET", `${path}?limit=0`));
  }, 300);
}

async function change(settings) {
  try {
    summarise(await api("PUT", path, settings));
    show(problem, null);
  } catch (error) { show(problem, error); }
}

find("#mode").addEventListener("change", (event) => change({ mode: event.target.value }));
find("#verify").addEventListener("change", (event) => change({ verify: event.target.value }));
find("#secret-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  await change({ add_secret: find("#secret").value.trim() });
  event.target.reset();
});
find("#clear").addEventListener("click", async () => { await api("DELETE", path); await load(); });
type.addEventListener("change", filter);

await load();
const events = new EventSource(`/sim/${path}/stream`);
events.addEventListener("message", (event) => {
  const change = JSON.parse(event.data);
  if (change.reload) { load(); return; }
  addType(change.delivery.event_type);
  list.prepend(row(change.delivery));
  while (list.children.length > KEPT) list.lastElementChild.remove();
  filter();
  soon();
});
let connected = false;
events.addEventListener("open", () => { if (connected) load(); connected = true; });
