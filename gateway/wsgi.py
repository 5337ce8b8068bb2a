"""Django's WSGI application. Threads of a web process run it (`web/django_threads.py`)."""

import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

application = get_wsgi_application()
# Imports every view before the process listens, so that the first caller does not wait for the imports.
import_module(settings.ROOT_URLCONF)
