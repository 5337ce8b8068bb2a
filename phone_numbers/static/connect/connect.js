// The hosted connect page: runs the embedded sign-up and sends its result to the service.
//
// The result has two parts, which come in any order: the sign-up's window sends a message with the account and the
// number, and the log-in's callback gets the code. The service's response has the address of the next page.
"use strict";

const page = document.getElementById("connect").dataset;
const begin = document.getElementById("begin");
const ways = document.querySelectorAll("[data-feature]");
const leave = document.getElementById("leave");
const META_SDK = "https://connect.facebook.net";
const META = /^https:\/\/([a-z0-9-]+\.)*facebook\.com$/;
const IDS_WAIT_MS = 10000;
const RETRIES = 8;
let attempt = null;

function show(id, text) {
  for (const name of ["progress", "problem"]) {
    document.getElementById(name).hidden = name !== id;
  }
  if (id) document.getElementById(`${id}-text`).textContent = text;
  if (id === "problem") document.getElementById(id).focus();
}

function allow(allowed) {
  for (const button of [...ways, leave]) button.disabled = !allowed;
}

function problem(text) {
  attempt = null;
  allow(true);
  begin.textContent = "Try again";
  show("problem", text);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Sends the answer until the service has accepted it. A repeated answer has no further effect.
async function answer(given) {
  allow(false);
  const body = JSON.stringify({ state: page.state, ...given });
  for (let turn = 0; turn < RETRIES; turn += 1) {
    let reply = null;
    try {
      reply = await fetch(page.answerUrl, {
        method: "POST", body, credentials: "same-origin",
        headers: { "Content-Type": "application/json", "X-CSRFToken": page.csrf },
      });
    } catch { /* offline for a moment: again */ }
    const said = reply ? await reply.json().catch(() => ({})) : { retry: true };
    if (said.redirect) return location.assign(said.redirect);
    if (reply && reply.status === 410) return location.reload();
    if (!said.retry) break;
    await pause(1000 * (turn + 1));
  }
  return problem("We could not finish just now. Please try again in a minute.");
}

function finishWhenComplete() {
  if (!attempt || !attempt.code || !attempt.ids) return;
  const { code, ids } = attempt;
  attempt = null;
  show("progress", "Setting up your number …");
  answer({ code, waba_id: ids.waba_id, phone_number_id: ids.phone_number_id || null });
}

function fromSignup(event) {
  const trusted = event.origin === page.sdkOrigin || (page.sdkOrigin === META_SDK && META.test(event.origin));
  if (!trusted || !attempt || typeof event.data !== "string") return;
  let said;
  try { said = JSON.parse(event.data); } catch { return; }
  if (!said || said.type !== "WA_EMBEDDED_SIGNUP") return;
  const data = said.data || {};
  if (String(said.event).startsWith("FINISH") && data.waba_id) attempt.ids = data;
  else if (data.error_message) attempt.reason = String(data.error_message);
  finishWhenComplete();
}

function loggedIn(response) {
  if (!attempt) return;
  if (!response || !response.authResponse || !response.authResponse.code) {
    if (attempt.reason) {
      show("progress", "Returning …");
      answer({ reason: attempt.reason });
    } else {
      problem("The sign-up was closed before it was finished. Nothing was connected.");
    }
    return;
  }
  const mine = attempt;
  mine.code = response.authResponse.code;
  finishWhenComplete();
  setTimeout(() => {
    if (attempt === mine) problem("The sign-up did not say which account you chose. Please try again.");
  }, IDS_WAIT_MS);
}

window.fbAsyncInit = () => {
  window.FB.init({ appId: page.appId, autoLogAppEvents: false, xfbml: false, version: page.graphVersion });
  allow(true);
};

function signUp(featureType) {
  if (!window.FB) return location.reload();
  attempt = {};
  allow(false);
  show("progress", "Waiting for you to finish in the other window …");
  window.FB.login(loggedIn, {
    config_id: page.configId, response_type: "code", override_default_response_type: true,
    extras: { setup: {}, featureType, sessionInfoVersion: "3" },
  });
}

for (const way of ways) way.addEventListener("click", () => signUp(way.dataset.feature));

leave.addEventListener("click", () => {
  show("progress", "Returning …");
  answer({});
});

window.addEventListener("message", fromSignup);

const sdk = document.createElement("script");
sdk.src = page.sdkUrl;
sdk.async = true;
sdk.crossOrigin = "anonymous";
sdk.addEventListener("error", () => {
  problem("Meta's sign-up could not be loaded. Check your network, and whether your browser blocks it.");
});
document.head.append(sdk);
