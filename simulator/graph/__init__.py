"""The simulated Graph API."""
