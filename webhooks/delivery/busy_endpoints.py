"""The endpoints that have open deliveries, as a common table expression for claims and for monitoring.

It skips from one endpoint id to the next in the partial index `delivery_due` (endpoint_id, next_attempt_at)
WHERE status IN ('pending', 'failed'): an endpoint costs one index probe, however many deliveries it has waiting.
"""

BUSY = """
WITH RECURSIVE busy (endpoint_id) AS (
    (SELECT endpoint_id FROM webhook_deliveries WHERE status IN ('pending', 'failed')
     ORDER BY endpoint_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.endpoint_id FROM webhook_deliveries d
            WHERE d.status IN ('pending', 'failed') AND d.endpoint_id > busy.endpoint_id
            ORDER BY d.endpoint_id LIMIT 1)
    FROM busy WHERE busy.endpoint_id IS NOT NULL
)
"""
