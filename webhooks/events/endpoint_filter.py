"""Filter of an endpoint: the events it wants; the one condition of publishing and of replays of missed events."""

from webhooks.events.types import ALL

STATUS = """coalesce({event}.status,
        split_part(substr({event}.dedupe_key, length('status:' || {event}.wamid || ':') + 1), ':', 1))"""
"""SQL: the status that a `message.status` event tells. Events of before that column have it in their dedupe key alone,
`status:<wamid>:<status>`."""
WANTED = f"""
    (e.format = 'envelope' OR {{event}}.raw_path IS NOT NULL)
    AND (left({{event}}.type, 8) <> 'webhook.' OR split_part({{event}}.dedupe_key, ':', 2) <> e.id::text)
    AND e.event_types && ARRAY['{ALL}', {{event}}.type]::varchar[]
    AND (e.waba_ids IS NULL OR {{event}}.waba_id = ANY(e.waba_ids))
    AND (e.phone_number_ids IS NULL OR {{event}}.phone_number_id = ANY(e.phone_number_ids))
    AND (e.statuses IS NULL OR {{event}}.type <> 'message.status' OR {STATUS} = ANY(e.statuses))
"""
"""SQL on the endpoint `e` and a row `{event}` with the columns of an event. An endpoint does not hear of itself. The
service's own events have no `raw_path`: the upstream's form has no place for them."""
