"""The key of an event's customer, by which an ordered endpoint gets its events one after another."""

CUSTOMER_KEY = """
    CASE WHEN e.ordered THEN
        hashtextextended({event}.phone_number_id || ':' || COALESCE({event}.wa_id, {event}.user_id), 0)
    END
"""
"""SQL on the endpoint `e` and an event; null without a number or a customer, and for an endpoint that is not ordered.
A hash, so that deliveries name nobody."""
