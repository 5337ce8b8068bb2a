"""What the service's processes import of others, imported: the server loads it from which tests fork them.

It is what takes longest, of what can be imported without settings. Nothing of the project is in it: its settings read
the environment, which each process has for itself.
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
