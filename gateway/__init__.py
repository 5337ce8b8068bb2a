"""What all apps build on: settings, API plumbing, the upstream client, ids, encryption, partitions."""

from gateway.celery import app as celery_app

__all__ = ["celery_app"]
