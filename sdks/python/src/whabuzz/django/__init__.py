"""A Django app that receives webhooks. It has a view, a signal, a table of handled events, and helpers for tests."""
