"""Imports of the service's processes from other packages. The server from which tests fork them loads this module.

These are the slowest imports that need no settings. Nothing of the project is among them, because its settings read the
environment, which differs for each process.
"""

import gc
from importlib import import_module

for _name in (
    "aiohttp",
    "celery.apps.beat",
    "celery.apps.worker",
    "cryptography.x509",
    "django.contrib.admin.options",
    "django.views.generic",
    "fido2.webauthn",
    "kombu.transport.redis",
    "markdown",
    "num2words",
    "phonenumbers",
    "prometheus_client",
    "psycopg_pool",
    "redis.asyncio",
    "rest_framework.serializers",
    "structlog",
    "tldextract",
    "uvicorn.protocols.http.httptools_impl",
):
    import_module(_name)
gc.collect()
gc.freeze()
