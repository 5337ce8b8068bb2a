"""Billing: a flat monthly price per number, tax invoices, autopay, and a restriction after late payment
(docs/billing.md).
"""
