// What fields offer. Generated from docs/openapi.json by `make sdks`.

export const API_VERSION = "2026-10-16";

export const EVENT_TYPES = [
  {"name": "Every Event", "value": "*"},
  {"name": "Message Inbound", "value": "message.inbound"},
  {"name": "Message Status", "value": "message.status"},
  {"name": "Message Error", "value": "message.error"},
  {"name": "Message Echo", "value": "message.echo"},
  {"name": "Message Outbound", "value": "message.outbound"},
  {"name": "Message History", "value": "message.history"},
  {"name": "User Preferences", "value": "user.preferences"},
  {"name": "Customer Opt Out", "value": "customer.opt_out"},
  {"name": "Batch Completed", "value": "batch.completed"},
  {"name": "Template Status", "value": "template.status"},
  {"name": "Template Quality", "value": "template.quality"},
  {"name": "Template Category", "value": "template.category"},
  {"name": "Number Quality", "value": "number.quality"},
  {"name": "Number Name", "value": "number.name"},
  {"name": "Number Connection", "value": "number.connection"},
  {"name": "Account Update", "value": "account.update"},
  {"name": "Account Alerts", "value": "account.alerts"},
  {"name": "Account Capability", "value": "account.capability"},
  {"name": "Account Security", "value": "account.security"},
  {"name": "Token Expiring", "value": "token.expiring"},
  {"name": "Token Invalid", "value": "token.invalid"},
  {"name": "Webhook Failing", "value": "webhook.failing"},
  {"name": "Webhook Disabled", "value": "webhook.disabled"},
  {"name": "Webhook Recovered", "value": "webhook.recovered"},
  {"name": "Webhook Delivery Exhausted", "value": "webhook.delivery.exhausted"},
  {"name": "Meta Other", "value": "meta.other"},
];

export const MEDIA_TYPES = [
  {"name": "Image", "value": "image"},
  {"name": "Video", "value": "video"},
  {"name": "Audio", "value": "audio"},
  {"name": "Document", "value": "document"},
  {"name": "Sticker", "value": "sticker"},
];
