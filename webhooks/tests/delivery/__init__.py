"""Tests of deliveries: claim, attempt, record, retry, order, circuit breaker."""
