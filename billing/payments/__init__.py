"""Payments: mandates and their debits, payment links, refunds, and the payment provider."""
