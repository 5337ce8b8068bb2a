"""A local fake of Meta's Graph API for WhatsApp, with a phone page and a webhook inbox, as its own process.

`python -m simulator` starts the simulator. It is used in development, by sandbox tenants, in tests and in benchmarks.
It keeps all data in memory, imports no code of the gateway, and talks to the gateway only over HTTP, as Meta does.
"""
