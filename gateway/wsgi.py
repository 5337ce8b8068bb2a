"""The web process: `gunicorn gateway.wsgi`. Its database connections come from a pool (`DATABASE_POOL_SIZE`)."""

import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from gateway import web_start
from gateway.api.limits.body_size import with_chunked_bodies

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

application = with_chunked_bodies(get_wsgi_application())
# Every view is imported before the process listens, not while its first caller waits. With --preload that happens once,
# in the parent of the worker processes: they share its memory, and `gateway.web_worker.Worker` begins their own work.
import_module(settings.ROOT_URLCONF)
web_start.import_preloaded()
