// Draws messages of businesses and of customers, with one function per type.
import { el } from "/static/dom.js";

const text = (value) => el("p", {}, String(value ?? ""));
const small = (value) => el("p", { class: "small" }, String(value));
const cardlet = (title, ...lines) =>
  el("div", { class: "cardlet" }, el("strong", {}, title), lines.filter(Boolean).map((line) => el("span", { class: "line" }, line)));

function media(kind, content) {
  const source = content.id ? `/sim/media/${encodeURIComponent(content.id)}` : null;
  const parts = [];
  if (!source) {
    // This page may not load files of other hosts, so a linked file is shown as a link.
    parts.push(el("a", { class: "cardlet", href: content.link, target: "_blank", rel: "noopener noreferrer" }, `${kind}: ${content.link}`));
  } else if (kind === "image" || kind === "sticker") {
    parts.push(el("img", { src: source, alt: content.caption || kind, loading: "lazy" }));
  } else if (kind === "video") {
    parts.push(el("video", { src: source, controls: true, preload: "metadata" }));
  } else if (kind === "audio") {
    parts.push(small(content.voice ? "Voice note" : "Audio"), el("audio", { src: source, controls: true, preload: "none" }));
  } else {
    parts.push(el("a", { class: "cardlet", href: source, target: "_blank", rel: "noopener" }, content.filename || "Document"));
  }
  if (content.caption) parts.push(text(content.caption));
  return parts;
}

function location(place) {
  return cardlet(place.name || "Location", place.address, `${place.latitude}, ${place.longitude}`);
}

function contacts(cards) {
  return cards.map((card) => cardlet(card.name?.formatted_name || "Contact", ...(card.phones || []).map((phone) => phone.phone)));
}

function order(content) {
  return [cardlet("Order", ...(content.product_items || []).map((item) =>
    `${item.quantity} × ${item.product_retailer_id}, ${item.item_price} ${item.currency}`)), content.text && text(content.text)];
}

function reply(label, send) {
  return el("button", { type: "button", onclick: send }, label);
}

const link = (label, url) => el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, label);

function header(head) {
  if (!head) return null;
  return head.type === "text" ? el("p", { class: "head" }, head.text) : media(head.type, head[head.type] || {});
}

function amount(value) {
  return value ? (value.value / (value.offset || 100)).toFixed(2) : "";
}

function actions(content, answer) {
  const action = content.action || {};
  const parameters = action.parameters || {};
  const interactive = (value) => () => answer({ type: "interactive", interactive: value });
  const form = (name, values) => interactive({ type: "nfm_reply", nfm_reply: { name, body: "Sent", response_json: JSON.stringify(values) } });
  switch (content.type) {
    case "button":
      return el("div", { class: "buttons" }, action.buttons.map(({ reply: one }) =>
        reply(one.title, interactive({ type: "button_reply", button_reply: { id: one.id, title: one.title } }))));
    case "list":
      return el("details", { class: "rows" }, el("summary", {}, action.button), action.sections.map((section) => el("div", {},
        section.title && el("h4", {}, section.title),
        el("div", { class: "buttons" }, section.rows.map((one) => el("button", {
          type: "button", onclick: interactive({ type: "list_reply", list_reply: { ...one } }) },
          one.title, one.description && el("small", {}, one.description)))))));
    case "cta_url":
      return el("div", { class: "buttons" }, link(parameters.display_text, parameters.url));
    case "location_request_message":
      return el("div", { class: "buttons" }, reply("Send location", () => answer({ type: "location" })));
    case "flow":
      return el("div", { class: "buttons" }, reply(parameters.flow_cta || "Open",
        form("flow", { flow_token: parameters.flow_token || "unused", answer: "yes" })));
    case "address_message":
      return el("div", { class: "buttons" }, reply("Give address",
        form("address_message", { saved_address_id: "a1", values: { name: "Asha Rao", in_pin_code: "560001", city: "Bengaluru" } })));
    case "call_permission_request":
      return el("div", { class: "buttons" }, ["accept", "reject"].map((response) => reply(response === "accept" ? "Allow" : "Do not allow",
        interactive({ type: "call_permission_reply", call_permission_reply: { response, response_source: "user_action" } }))));
    case "voice_call":
      return el("div", { class: "buttons" }, el("span", {}, parameters.display_text || "Call Now"));
    case "contact_request":
      return el("div", { class: "buttons" }, reply("Share my number", () => answer({ type: "contacts" })));
    case "product":
    case "product_list":
    case "catalog_message": {
      const items = action.sections?.flatMap((section) => section.product_items) ?? [{ product_retailer_id: action.product_retailer_id || "SKU-1" }];
      const bought = items.map((item) => ({ product_retailer_id: item.product_retailer_id, quantity: 1, item_price: 100, currency: "INR" }));
      return [items.map((item) => small(item.product_retailer_id)), el("div", { class: "buttons" }, reply("Order",
        () => answer({ type: "order", order: { catalog_id: action.catalog_id || "1", text: "", product_items: bought } })))];
    }
    case "carousel":
      return action.cards.map((card) => el("div", { class: "cardlet" }, header(card.header), card.body && text(card.body.text),
        actions({ type: card.type, action: card.action }, answer)));
    case "order_details":
      return [cardlet(`Order ${parameters.reference_id}`, `Total ${amount(parameters.total_amount)} ${parameters.currency || ""}`),
        el("div", { class: "buttons" }, el("span", {}, "Review and pay"))];
    case "order_status":
      return cardlet(`Order ${parameters.reference_id}`, parameters.order?.status, parameters.order?.description);
    default:
      return small(`${content.type} message`);
  }
}

function interactive(content, answer) {
  const chosen = content.button_reply || content.list_reply;
  if (chosen) return [text(chosen.title), chosen.description && small(chosen.description)];
  if (content.nfm_reply) return [text(content.nfm_reply.body || "Sent"), small(content.nfm_reply.response_json)];
  if (content.call_permission_reply) return text(`Calls: ${content.call_permission_reply.response}`);
  return [header(content.header), content.body && text(content.body.text), content.footer && small(content.footer.text), actions(content, answer)];
}

function template(message, answer) {
  const filled = message.rendered || {};
  return [header(filled.header), text(filled.body), filled.footer && small(filled.footer), el("div", { class: "buttons" },
    (filled.buttons || []).map((button) => {
      if (button.type === "URL") return link(button.text, button.url);
      if (button.type === "QUICK_REPLY") {
        return reply(button.text, () => answer({ type: "button", button: { payload: button.payload, text: button.text } }));
      }
      return el("span", {}, button.code ? `${button.text}: ${button.code}` : button.text || button.type.toLowerCase());
    }))];
}

export function content(message, answer) {
  const body = message.body;
  const kind = body.type || "text";
  switch (kind) {
    case "text": return text(body.text?.body);
    case "image": case "video": case "audio": case "document": case "sticker": return media(kind, body[kind]);
    case "location": return location(body.location);
    case "contacts": return contacts(body.contacts);
    case "interactive": return interactive(body.interactive, answer);
    case "template": return template(message, answer);
    case "button": return text(body.button.text);
    case "order": return order(body.order);
    case "unsupported": return small("A message of a type that the API does not support");
    default: return small(JSON.stringify(body[kind] ?? kind));
  }
}

export function gist(message) {
  const body = message.body;
  const inner = body[body.type] || {};
  return body.text?.body || message.rendered?.body || inner.caption || inner.body?.text || inner.button_reply?.title
    || inner.list_reply?.title || inner.text || inner.body || body.type;
}
