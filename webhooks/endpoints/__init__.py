"""Webhook endpoints: their life, their health and the notices about them."""
