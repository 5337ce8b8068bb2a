"""A Django app that receives webhooks: a signed view, a signal, the keys of events that came, and test helpers."""
