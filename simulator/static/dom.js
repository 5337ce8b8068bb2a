// Helpers for all pages: build elements without innerHTML, and call the control API.

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const find = (selector, root = document) => root.querySelector(selector);

export async function api(method, path, body) {
  const response = await fetch(`/sim/${path}`, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || `HTTP ${response.status}`);
  return answer;
}

export const clock = (seconds) =>
  new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

export const clockWithSeconds = (seconds) => new Date(seconds * 1000).toLocaleTimeString([]);

export function show(problem, error) {
  problem.textContent = error ? error.message : "";
  problem.hidden = !error;
}

export function table(heads, rows, empty) {
  if (!rows.length) return el("p", { class: "soft" }, empty);
  return el("table", { class: "stack" },
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, column) => el("td", { "data-label": heads[column] }, cell))))));
}
