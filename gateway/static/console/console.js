// Only for convenience: every page works without this script.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.querySelector(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      button.textContent = "Copied";
    } catch {
      // Plain http has no clipboard, so the text is selected for copying by keyboard.
      const fold = source.closest("details");
      if (fold) fold.open = true;
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C or ⌘C";
    }
  });
}
// A click on a member of a JSON document copies the member's path.
for (const member of document.querySelectorAll("[data-path]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = member.textContent;
  button.title = `Copy the path: ${member.dataset.path}`;
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(member.dataset.path);
    member.dataset.copied = "yes";
  });
  member.replaceChildren(button);
}
// On narrow screens the menu is closed at first.
for (const button of document.querySelectorAll("button[data-toggles]")) {
  const menu = document.querySelector(button.dataset.toggles);
  const show = (open) => {
    button.setAttribute("aria-expanded", String(open));
    menu.classList.toggle("closed", !open);
  };
  button.hidden = false;
  show(false);
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
}
// The text field of a template: buttons for marks around the selection and for the next variable, and a count of characters.
for (const area of document.querySelectorAll("textarea[data-marks]")) {
  const icons = document.querySelector(".icon use").getAttribute("href").split("#")[0];
  const bar = document.createElement("div");
  bar.className = "marks";
  bar.setAttribute("role", "toolbar");
  bar.setAttribute("aria-label", "Format");
  const add = (name, icon, press) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = name;
    button.setAttribute("aria-label", name);
    button.innerHTML = `<svg class="icon" aria-hidden="true"><use href="${icons}#${icon}"/></svg>`;
    button.addEventListener("click", () => {
      const { selectionStart: from, selectionEnd: to, value } = area;
      const [before, after] = press(value);
      area.setRangeText(before + value.slice(from, to) + after, from, to, "end");
      if (from === to) area.selectionEnd = area.selectionStart -= after.length;
      area.focus();
      area.dispatchEvent(new Event("input", { bubbles: true }));
      area.dispatchEvent(new Event("change", { bubbles: true }));
    });
    bar.append(button);
  };
  for (const [name, icon, mark] of [["Bold", "bold", "*"], ["Italic", "italic", "_"], ["Strikethrough", "strikethrough", "~"], ["Monospace", "code", "```"]]) add(name, icon, () => [mark, mark]);
  add("Variable", "braces", (value) => [`{{${Math.max(0, ...Array.from(value.matchAll(/{{(\d+)}}/g), (found) => Number(found[1]))) + 1}}}`, ""]);
  const count = document.createElement("span");
  const show = () => { count.textContent = `${area.value.length} of ${area.maxLength}`; };
  bar.append(count);
  show();
  area.addEventListener("input", show);
  area.before(bar);
}
// The preview of a template shows the values of its variables as they are typed.
const asWritten = new WeakMap();
document.addEventListener("input", ({ target }) => {
  const preview = target.closest("form")?.querySelector(".as-read");
  if (!preview || !/^(body_|header$)/.test(target.name)) return;
  const walk = document.createTreeWalker(preview, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    if (!asWritten.has(text)) asWritten.set(text, text.data);
    const isHeader = text.parentElement.closest(".header-of");
    text.data = asWritten.get(text).replace(/{{(\w+)}}/g, (variable, name) => target.form.elements[isHeader ? "header" : `body_${name}`]?.value || variable);
  }
});
// Empty rows of a form are hidden, except for the first. A button shows the next row.
for (const button of document.querySelectorAll("button[data-adds]")) {
  const rows = [...button.parentElement.querySelectorAll(button.dataset.adds)];
  const isFilled = (row) => [...row.querySelectorAll("input, select")].some((field) => field.value);
  rows.forEach((row, place) => { row.hidden = place > 0 && !isFilled(row); });
  const show = () => { button.hidden = rows.every((row) => !row.hidden); };
  show();
  button.addEventListener("click", () => {
    const next = rows.find((row) => row.hidden);
    next.hidden = false;
    next.querySelector("input, select").focus();
    show();
  });
}
// A slider of hours shows the number of hours and when they end.
for (const slider of document.querySelectorAll("input[data-shows]")) {
  const output = document.querySelector(slider.dataset.shows);
  const { zone, zoneName } = output.dataset;
  const style = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZone: zone };
  const show = () => {
    const hours = Number(slider.value);
    const end = new Date(Date.now() + hours * 3_600_000).toLocaleString("en-GB", style);
    output.textContent = hours ? `${hours} hour${hours === 1 ? "" : "s"}, until ${end} ${zoneName}` : "0 hours: the old secret ends at once";
  };
  show();
  slider.addEventListener("input", show);
}
// Ctrl+K or ⌘K focuses the search, the arrow keys move through the results, and Escape closes them.
const find = document.querySelector("#find");
if (find) {
  const form = find.closest("form");
  const hits = form.querySelector(".hits");
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      find.select();
      find.focus();
    }
  });
  form.addEventListener("keydown", (event) => {
    const stops = [find, ...hits.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      stops[Math.max(0, Math.min(stops.length - 1, stops.indexOf(document.activeElement) + step))].focus();
    } else if (event.key === "Escape") {
      hits.replaceChildren();
      find.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target)) hits.replaceChildren();
  });
}
// Narrow screens show a table's row as a list, in which each cell has the name of its column.
const nameColumns = (part) => {
  for (const table of part.querySelectorAll(".rows table:not(.named, .list)")) {
    const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    table.setAttribute("role", "table");
    for (const row of table.querySelectorAll("tbody tr")) {
      row.setAttribute("role", "row");
      [...row.cells].forEach((cell, place) => {
        cell.setAttribute("role", "cell");
        cell.dataset.column = names[place] ?? "";
      });
    }
    table.classList.add("named");
  }
};
nameColumns(document);
document.addEventListener("htmx:afterSettle", () => nameColumns(document));
// A changed filter applies at once. The filter's button is for browsers without scripts.
// On a phone the filters are folded.
const sieve = () => {
  for (const form of document.querySelectorAll("form.filters[hx-get]:not(.quick)")) {
    form.classList.add("quick");
    const fold = form.closest("details.sieve");
    if (fold && matchMedia("(max-width: 36rem)").matches) fold.open = false;
  }
};
sieve();
document.addEventListener("htmx:afterSettle", sieve);
document.addEventListener("htmx:configRequest", (event) => {
  if (!event.detail.elt.matches("form.filters")) return;
  for (const [name, value] of Object.entries(event.detail.parameters)) {
    if (value === "") delete event.detail.parameters[name];
  }
});
// Escape and a click outside close the account menu.
const account = document.querySelector("details.account");
document.addEventListener("click", (event) => { if (account && !account.contains(event.target)) account.open = false; });
account?.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  account.open = false;
  account.querySelector("summary").focus();
});
// A notice appears if a part of the page cannot be refreshed. If the session has ended, the browser goes to the log-in.
// A filter replaces the notice together with the rest of the page's content.
const notice = (isStale) => document.querySelector("#stale")?.toggleAttribute("hidden", !isStale);
for (const failed of ["htmx:sendError", "htmx:responseError"]) document.addEventListener(failed, () => notice(true));
document.addEventListener("htmx:beforeSwap", (event) => {
  if (new URL(event.detail.xhr.responseURL, location).pathname === "/login") {
    event.detail.shouldSwap = false;
    location.reload();
  } else if (!event.detail.isError) {
    notice(false);
  }
});
// A submitted form shows that it is busy, and cannot be submitted again before its answer.
document.addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.method === "dialog") return;
  if (event.target.dataset.sent) return event.preventDefault();
  if (event.target.method === "post") event.target.dataset.sent = "yes";
  event.submitter?.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button[aria-busy]")) button.removeAttribute("aria-busy");
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
// Parts of the page that show events refresh when there are new ones, unless the part has the focus.
// They also refresh when the event stream is lost, so that the notice appears, and when it is back.
// A filter of an older page of a list brings the first such part.
const LOST = 3; // The stream ends after each answer and is opened again, so a single end is not a failure.
let stream = null;
let failures = 0;
const refresh = () => {
  for (const part of document.querySelectorAll("[data-live]")) {
    if (!part.contains(document.activeElement)) htmx.trigger(part, "live");
  }
};
const follow = () => {
  stream?.close();
  stream = null;
  const part = document.querySelector("[data-live]");
  if (!part || document.hidden) return;
  stream = new EventSource(part.dataset.live);
  stream.addEventListener("news", refresh);
  stream.addEventListener("open", () => {
    if (failures >= LOST) refresh();
    failures = 0;
  });
  stream.addEventListener("error", (event) => {
    const isOver = event.target.readyState === EventSource.CLOSED;
    failures = isOver ? LOST : failures + 1;
    if (failures === LOST) refresh();
    if (isOver) setTimeout(follow, 15_000);
  });
};
document.addEventListener("visibilitychange", follow);
document.addEventListener("htmx:afterSettle", () => { if (!stream) follow(); });
addEventListener("pagehide", () => stream?.close());
follow();
// A page that nobody sees does not fetch a conversation, because the messages would count as read.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.detail.elt.id === "thread") event.preventDefault();
});
// The example language that was opened last is also open on the next page.
const remembered = [...document.querySelectorAll("details[data-remembered]")];
const language = localStorage.getItem("language");
const isHere = remembered.some((part) => part.dataset.remembered === language);
for (const part of remembered) {
  if (isHere) part.open = part.dataset.remembered === language;
  part.addEventListener("toggle", () => {
    if (part.open) localStorage.setItem("language", part.dataset.remembered);
  });
}
// Passkey buttons are shown if the browser supports passkeys, once allauth's scripts have loaded. They come after this
// script, and before them a click would submit the form without a passkey. A failed passkey shows a sentence.
addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("button[data-passkey]")) {
    button.hidden = !window.PublicKeyCredential || !window.allauth?.webauthn;
  }
});
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  document.querySelector("#passkey-problem").hidden = false;
});
document.querySelector(".note.bad[role=alert]:not([hidden])")?.focus();
// An open dialog of a page keeps the focus inside. Its content is shown only once, so the first Escape only shows a warning.
for (const dialog of document.querySelectorAll("dialog[open]")) {
  const warning = dialog.querySelector("[data-warning]");
  dialog.removeAttribute("open");
  dialog.showModal();
  dialog.querySelector("h2").focus();
  dialog.addEventListener("cancel", (event) => {
    if (warning.hidden) event.preventDefault();
    warning.hidden = false;
  });
  dialog.addEventListener("close", () => {
    history.replaceState(null, "", dialog.dataset.then);
    dialog.remove();
    document.querySelector(dialog.dataset.focus)?.focus();
  });
}
// A click on a row opens the row's page, unless it hits a control or selects text.
document.addEventListener("click", (event) => {
  const link = event.target.closest(".rows tbody tr")?.querySelector("td:first-child > a");
  if (!link || event.target.closest("a, button, input, select, label, summary, .badge[title]") || !getSelection().isCollapsed) return;
  if (event.ctrlKey || event.metaKey) open(link.href);
  else link.click();
});
// A link with `data-opens` opens that dialog instead of its page. Escape, the dialog's button and a click outside close it.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-opens]");
  if (link && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
    event.preventDefault();
    document.querySelector(link.dataset.opens).showModal();
  } else if (event.target.matches("dialog.drawer")) {
    event.target.close();
  }
});
// A session ends after twelve hours. After the next log-in, which may end with a second factor, the form has the values that
// were typed before.
if (document.body.classList.contains("console")) {
  const kept = `typed:${location.pathname}`;
  const fields = () => document.querySelectorAll("main form :is(textarea, select, input:not([type=hidden], [type=password], [type=file], [type=checkbox], [type=radio]))[name]");
  const before = document.referrer && new URL(document.referrer);
  const typed = JSON.parse(sessionStorage.getItem(kept) ?? "{}");
  sessionStorage.removeItem(kept);
  if (before?.origin === location.origin && ["/login", "/second-factor/authenticate/"].includes(before.pathname)) {
    for (const field of fields()) {
      if (!(field.name in typed)) continue;
      field.value = typed[field.name];
      field.dispatchEvent(new Event("change", { bubbles: true }));
    }
  }
  document.querySelector("main").addEventListener("input", () => {
    sessionStorage.setItem(kept, JSON.stringify(Object.fromEntries(Array.from(fields(), (field) => [field.name, field.value]))));
  });
  document.querySelector("form[action$='/logout']")?.addEventListener("submit", () => sessionStorage.clear());
}
