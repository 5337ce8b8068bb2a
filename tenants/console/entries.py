"""The tenant's own entries in the console's navigation and list of first steps."""

from tenants.console import first_steps
from tenants.console.first_steps import FirstStep
from tenants.console.frame import Page, Section, register

register(
    Page("Home", "console", "/console", Section.OVERVIEW, 10),
    Page("Request log", "console_requests", "/console/requests", Section.DEVELOPERS, 20),
    Page("API keys", "console_api_keys", "/console/api-keys", Section.DEVELOPERS, 10),
    Page("Team", "console_team", "/console/team", Section.ACCOUNT, 20),
    Page("Settings", "console_settings", "/console/settings", Section.ACCOUNT, 30),
    Page("Security", "mfa_index", "/second-factor", Section.ACCOUNT, 40),
)
first_steps.register(
    FirstStep(
        step="api_key_created",
        title="Create an API key",
        text="Your server identifies itself with it.",
        button="Create a key",
        url_name="console_api_keys",
        order=30,
        needs_approval=True,
    )
)
