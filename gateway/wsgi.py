"""Django's WSGI application. A web process runs it in its threads (`web/django_threads.py`)."""

import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

application = get_wsgi_application()
# Every view is imported before the process listens, so its first caller does not wait.
import_module(settings.ROOT_URLCONF)
