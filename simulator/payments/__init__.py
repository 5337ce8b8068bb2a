"""A local payment provider with Razorpay's API: mandates, debits, payment links, signed webhooks, an adjustable
clock.
"""
