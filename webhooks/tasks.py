"""Celery entry points of the delivery engine."""

from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from webhooks import replay, wake_up
from webhooks.analytics import rollup
from webhooks.delivery import dispatcher, retries_and_attempt_log
from webhooks.destinations import archives
from webhooks.endpoints import notices
from webhooks.events import retention


# Acknowledged at its start. A Celery worker that holds an unacknowledged message ends when Valkey fails.
@shared_task(acks_late=False)
def deliver_due(**_: Any) -> None:
    """Deliver due events until the worker stops. Called by wake-ups, and by beat in case a wake-up is lost.

    Returns at once if the process has a running dispatcher, which it normally has from its start.
    """
    while dispatcher.run():
        pass


@shared_task
def release_replays(**_: Any) -> None:
    """Release the next chunk of each replay, and schedule the next release. Called when a replay is queued, and by
    beat.
    """
    replay.release_due()
    replay.release_again_soon()


@worker_shutting_down.connect
def _stop_dispatcher(**_: Any) -> None:
    """Stop the dispatcher of a stopping worker: it finishes its requests and claims no more."""
    dispatcher.stop()


@shared_task
def notify_endpoint_changes(**_: Any) -> None:
    """Every half minute: notify tenants of endpoints that keep failing or have recovered, and of given-up
    deliveries.
    """
    notices.notify_changes()
    notices.report_exhausted()


@shared_task
def hurry_archives(**_: Any) -> None:
    """Every half minute: make an archive's deliveries due if they fill an object before the hour ends."""
    if archives.hurry():
        wake_up.wake()


@shared_task
def roll_up_figures(**_: Any) -> None:
    """Every twenty seconds: recount the hours in which messages or deliveries changed."""
    rollup.roll_up()


@shared_task
def prune_figures(**_: Any) -> None:
    """Hourly: prune figures whose source rows are past retention."""
    rollup.prune()


@shared_task
def move_bodies(**_: Any) -> None:
    """Every minute: move the bodies of tenants whose retention changed."""
    retention.move_bodies()


@shared_task
def prune_answers(**_: Any) -> None:
    """Hourly: prune receivers' answers to events past retention."""
    retries_and_attempt_log.prune_answers()


@shared_task
def prune_event_keys(**_: Any) -> None:
    """Hourly: prune dedupe keys of notifications that can no longer be repeated."""
    retention.prune_keys()
