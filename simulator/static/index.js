import { api, el, find, show, table } from "/static/dom.js";

const problem = find("#problem");

function count(label, value) {
  return el("div", {}, el("dt", {}, label), el("dd", {}, String(value)));
}

async function refresh() {
  const [health, accounts, inboxes] = await Promise.all([
    api("GET", "health"), api("GET", "accounts"), api("GET", "inboxes")]);
  find("#callback").textContent = health.callback_url;
  find("#inbox-url").textContent = `${location.origin}/inbox/{name}`;
  find("#counts").replaceChildren(
    count("accounts", health.accounts), count("numbers", health.phone_numbers), count("messages", health.messages),
    count("Graph requests", health.requests), count("notifications delivered", health.notifications.delivered),
    count("waiting", health.notifications.ready + health.notifications.waiting + health.notifications.in_flight));
  find("#accounts").replaceChildren(table(
    ["Account", "Numbers", "App", "Access token"],
    accounts.data.map((account) => [
      el("span", {}, el("strong", {}, account.name), el("br"), el("code", {}, account.waba_id)),
      el("span", {}, account.phone_numbers.map((number) => el("div", {},
        `${number.display_phone_number} `, el("code", {}, number.id), " ",
        el("span", { class: number.status === "CONNECTED" ? "badge good" : "badge bad" }, number.status.toLowerCase())))),
      el("span", { class: account.subscribed ? "badge good" : "badge" }, account.subscribed ? "subscribed" : "not subscribed"),
      account.access_tokens.length ? el("button", {
        type: "button", class: "plain", "aria-label": `Copy the access token of ${account.name}`,
        onclick: (event) => copy(event.target, account.access_tokens[0]) }, "Copy") : "none",
    ]), "There is no account yet. Create one here, or with POST /sim/accounts."));
  find("#inboxes").replaceChildren(table(
    ["Inbox", "Deliveries", "Unique", "Repeated", "Mode"],
    inboxes.data.map((inbox) => [
      el("a", { href: `/inbox/${encodeURIComponent(inbox.name)}` }, inbox.name),
      String(inbox.total), String(inbox.unique), String(inbox.duplicates), inbox.mode]),
    "No inbox has been used yet."));
}

async function copy(button, text) {
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

find("#create").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  try {
    await api("POST", "accounts", { name: form.get("name") || undefined, numbers: Number(form.get("numbers")) });
    event.target.reset();
    show(problem, null);
    await refresh();
  } catch (error) { show(problem, error); }
});

refresh();
setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 3000);
