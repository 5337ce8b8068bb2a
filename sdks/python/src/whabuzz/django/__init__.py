"""A Django app that receives webhooks: a verifying view, a signal, the keys of handled events, and test helpers."""
