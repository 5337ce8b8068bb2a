"""The upstream: calls of Meta's Graph API, what its answers mean, and its notifications."""
