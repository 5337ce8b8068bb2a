"""A local payment provider on Razorpay's paths: mandates, debits, payment links, signed webhooks, a movable clock."""
