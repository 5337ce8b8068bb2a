"""Which events an endpoint wants: the one condition of publishing and of replays of missed events."""

from webhooks.events.types import ALL

WANTED = f"""
    e.event_types && ARRAY['{ALL}', {{event}}.type]::varchar[]
    AND (e.waba_ids IS NULL OR {{event}}.waba_id = ANY(e.waba_ids))
    AND (e.phone_number_ids IS NULL OR {{event}}.phone_number_id = ANY(e.phone_number_ids))
"""
"""SQL on the endpoint `e` and a row `{event}` with the columns of an event."""
