// "Try it" on the pages of the reference: a form for each operation, which calls this very gateway with the reader's key.
// The key stays in this tab (sessionStorage) and goes nowhere else.
const KEY = "try-it-key";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function field(label, control) {
  return element("label", {}, element("span", {}, label), control);
}

function form(operation, place) {
  const key = element("input", { type: "password", autocomplete: "off", placeholder: "wb_test_…", required: "" });
  key.value = sessionStorage.getItem(KEY) ?? "";
  const inputs = operation.parameters.map((each) => [
    each,
    element("input", { type: "text", autocomplete: "off", ...(each.required ? { required: "" } : {}) }),
  ]);
  const body = operation.body === null ? null : element("textarea", { rows: "10", spellcheck: "false" });
  if (body) body.value = operation.body;
  const status = element("p", { role: "status" });
  const answer = element("pre", { tabindex: "0", "aria-label": "Answer" });
  const send = element("button", { type: "submit", class: "md-button md-button--primary" }, "Send");
  const made = element(
    "form",
    {},
    field("API key", key),
    ...inputs.map(([each, input]) => field(`${each.name}${each.required ? "" : " (optional)"}`, input)),
    ...(body ? [field("Body", body)] : []),
    send,
    status,
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const changes = operation.method !== "GET";
    if (changes && key.value.startsWith("wb_live_") && !confirm("This is a live key: the call is real. Send it?")) return;
    sessionStorage.setItem(KEY, key.value);
    let path = operation.path;
    const query = new URLSearchParams();
    for (const [each, input] of inputs) {
      if (each.in === "path") path = path.replace(`{${each.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.append(each.name, input.value);
    }
    send.disabled = true;
    status.textContent = "Waiting for the answer …";
    try {
      const got = await fetch(path + (query.size ? `?${query}` : ""), {
        method: operation.method,
        headers: { Authorization: `Bearer ${key.value}`, ...(body ? { "Content-Type": "application/json" } : {}) },
        ...(body ? { body: body.value } : {}),
        credentials: "omit",
      });
      const text = await got.text();
      status.textContent = `HTTP ${got.status}, ${got.headers.get("X-Service-Request-Id") ?? ""}`.replace(/, $/, "");
      try {
        answer.textContent = JSON.stringify(JSON.parse(text), null, 2);
      } catch {
        answer.textContent = text.slice(0, 20000);
      }
      made.append(answer);
    } catch {
      status.textContent = "The gateway did not answer.";
    } finally {
      send.disabled = false;
    }
  });
  place.append(made);
}

for (const place of document.querySelectorAll("details.try-it")) {
  place.addEventListener("toggle", () => {
    if (place.open && !place.querySelector("form")) form(JSON.parse(place.dataset.operation), place);
  });
}
