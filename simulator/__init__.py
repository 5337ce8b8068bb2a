"""A local fake of Meta's Graph API for WhatsApp, with a phone page and a webhook inbox, as its own process.

It serves development, sandbox tenants, tests and benchmarks: `python -m simulator`. It keeps everything in memory,
imports no code of the gateway, and talks to it only over HTTP, as Meta does.
"""
