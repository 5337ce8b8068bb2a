"""Meta: calls of the Graph API, the classification of their answers, and Meta's notifications."""
