"""Requests to a webhook endpoint: body, headers, signature, the verify ping and the example event."""
