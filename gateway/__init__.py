"""Common parts of all apps: settings, API plumbing, the Graph API client, ids, encryption, database."""

from gateway.celery import app as celery_app

__all__ = ["celery_app"]
