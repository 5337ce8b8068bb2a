"""Meta: calls of the Graph API, the classification of its answers, and its notifications."""
