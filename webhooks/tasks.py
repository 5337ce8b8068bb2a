"""Celery entry points of the delivery engine."""

from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from webhooks import delivery_rows, replay, wake_up
from webhooks.delivery import attempts, dispatcher
from webhooks.endpoints import notices
from webhooks.events import retention
from webhooks.figures import rollup


# Acknowledged at its start: with a message that is not, a Celery worker ends when Valkey goes away under it.
@shared_task(acks_late=False)
def deliver_due(**_: Any) -> None:
    """Deliver what is due until the worker stops. Called by wake-ups and by beat as the safety net; returns at once
    while the process delivers already, as it does from its start on."""
    while dispatcher.run():
        pass


@shared_task
def release_replays(**_: Any) -> None:
    """The next chunk of each replay, and the release after it. Called when a replay is queued, and by beat."""
    replay.release_due()
    replay.release_again_soon()


@worker_shutting_down.connect
def _stop_dispatcher(**_: Any) -> None:
    """A stopping worker lets its requests finish and claims no more."""
    dispatcher.stop()


@shared_task
def notify_endpoint_changes(**_: Any) -> None:
    """Every half minute: notify tenants of endpoints that keep failing and of those that recovered, and of deliveries
    that were given up."""
    notices.notify_changes()
    notices.report_exhausted()


@shared_task
def hurry_archives(**_: Any) -> None:
    """Every half minute: archive what fills an object before the hour is over."""
    if delivery_rows.hurry_archives():
        wake_up.wake()


@shared_task
def roll_up_figures(**_: Any) -> None:
    """Every minute: count the hours of tenants whose messages or deliveries changed."""
    rollup.roll_up()


@shared_task
def prune_figures(**_: Any) -> None:
    """Daily: prune figures that are older than the rows they were counted from."""
    rollup.prune()


@shared_task
def move_bodies(**_: Any) -> None:
    """Every minute: move the bodies of tenants whose retention changed."""
    retention.move_bodies()


@shared_task
def prune_answers(**_: Any) -> None:
    """Daily: prune what receivers answered, where the retention of the events is over."""
    attempts.prune_answers()


@shared_task
def prune_event_keys(**_: Any) -> None:
    """Hourly: prune the dedupe keys that no repeat can come for any more."""
    retention.prune_keys()
