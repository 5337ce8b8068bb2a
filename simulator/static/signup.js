// The dialog of the embedded sign-up: posts the WA_EMBEDDED_SIGNUP message and the login answer to its opener.
import { api, el, find, show } from "/static/dom.js";

const query = new URLSearchParams(location.search);
const origin = query.get("origin") || location.origin;
const NEW = "new";
const NONE = "none";
let accounts = [];

const chosen = () => accounts.find((account) => account.waba_id === find("#account").value);

function fillNumbers() {
  const account = chosen();
  find("#new-name").hidden = Boolean(account);
  find("#number").replaceChildren(
    ...(account ? account.phone_numbers : []).map((number) =>
      el("option", { value: number.id }, `${number.display_phone_number}${number.is_on_biz_app ? " (coexistence)" : ""}`)),
    el("option", { value: NEW }, "Add a new number"),
    el("option", { value: NONE }, "No number yet"));
  fillCoexistence();
}

function fillCoexistence() {
  find("#coexistence-row").hidden = find("#number").value !== NEW;
}

async function load() {
  accounts = (await api("GET", "accounts")).data;
  find("#account").replaceChildren(
    el("option", { value: NEW }, "Create a new account"),
    ...accounts.map((account) => el("option", { value: account.waba_id }, `${account.name} (${account.waba_id})`)));
  fillNumbers();
}

function post(message) {
  if (window.opener) window.opener.postMessage(message, origin);
}

function signal(event, data) {
  // The real dialog sends a JSON string too.
  post(JSON.stringify({ type: "WA_EMBEDDED_SIGNUP", event, version: 3, data }));
}

function end(code) {
  post({ source: "simulator-sdk", code });
  find("#done").textContent = code
    ? "Done. You can close this window." : "Cancelled. You can close this window.";
  find("#done").hidden = false;
  for (const button of document.querySelectorAll("button")) button.disabled = true;
  if (window.opener) window.close();
}

async function finish() {
  let account = chosen();
  if (!account) {
    const created = await api("POST", "accounts", { name: find("[name=name]").value, numbers: 0 });
    account = await api("GET", `accounts/${created.waba_id}`);
  }
  let number = account.phone_numbers.find((one) => one.id === find("#number").value);
  if (find("#number").value === NEW) {
    const coexistence = find("#coexistence").checked;
    number = await api("POST", `accounts/${account.waba_id}/phone_numbers`, { coexistence, registered: coexistence });
  }
  const { code } = await api("POST", "codes", { waba_id: account.waba_id, variant: find("#variant").value });
  const data = { waba_id: account.waba_id, business_id: account.business_id };
  if (!number) signal("FINISH_ONLY_WABA", data);
  else signal(number.is_on_biz_app ? "FINISH_WHATSAPP_BUSINESS_APP_ONBOARDING" : "FINISH",
    { phone_number_id: number.id, ...data });
  end(code);
}

find("#account").addEventListener("change", fillNumbers);
find("#number").addEventListener("change", fillCoexistence);
find("#form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try { await finish(); } catch (error) { show(find("#problem"), error); }
});
find("#cancel").addEventListener("click", () => {
  signal("CANCEL", { current_step: "PHONE_NUMBER_SETUP" });
  end(null);
});
find("#report").addEventListener("click", () => {
  signal("CANCEL", {
    error_message: "Your verified name violates WhatsApp guidelines.", error_id: "524126",
    session_id: "f34b51dab5e0498", timestamp: String(Math.floor(Date.now() / 1000)) });
  end(null);
});
find("#coexistence").checked = query.get("feature") === "whatsapp_business_app_onboarding";
await load();
