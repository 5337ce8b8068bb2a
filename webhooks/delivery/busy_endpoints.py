"""The endpoints that have open deliveries, as a common table expression for claims and for monitoring.

It skips from one endpoint id to the next in the partial index `delivery_due` (endpoint_id, next_attempt_at)
WHERE status IN ('pending', 'failed'): an endpoint costs one index probe, however many deliveries it has waiting.
"""

BUSY = """
WITH RECURSIVE busy (endpoint_id, due_at) AS (
    (SELECT endpoint_id, next_attempt_at FROM webhook_deliveries WHERE status IN ('pending', 'failed')
     ORDER BY endpoint_id, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.next_attempt_at
    FROM busy CROSS JOIN LATERAL (
        SELECT d.endpoint_id, d.next_attempt_at FROM webhook_deliveries d
        WHERE d.status IN ('pending', 'failed') AND d.endpoint_id > busy.endpoint_id
        ORDER BY d.endpoint_id, d.next_attempt_at LIMIT 1
    ) AS next
)
"""
"""`due_at` is when the endpoint's first open delivery is due."""
