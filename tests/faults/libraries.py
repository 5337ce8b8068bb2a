"""The service's slowest imports from other packages. The server from which tests fork processes loads this module.

These imports need no settings. The project's own modules are not imported, because the project's settings read the
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
