"""Webhook endpoints: their lifecycle, their health, and notices about them."""
