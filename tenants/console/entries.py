"""The tenant's own entries in the console's navigation and list of first steps."""

from tenants.console.frame import FirstStep, Page, register

register(
    pages=[
        Page("Home", "console", "/console", 0),
        Page("Request log", "console_requests", "/console/requests", 60),
        Page("API keys", "console_api_keys", "/console/api-keys", 80),
        Page("Team", "console_team", "/console/team", 88),
        Page("Settings", "console_settings", "/console/settings", 90),
        Page("Security", "mfa_index", "/second-factor", 95),
    ],
    steps=[
        FirstStep(
            step="api_key_created",
            title="Create an API key",
            text="Your server identifies itself with it.",
            button="Create a key",
            url_name="console_api_keys",
            order=30,
        )
    ],
)
