"""Messaging in the console: entries in the navigation, and the last of the first steps."""

from tenants.console import first_steps
from tenants.console.first_steps import FirstStep
from tenants.console.frame import Page, Section, register

register(
    Page("Daily ledger", "console_ledger", "/console/ledger", Section.OVERVIEW, 30),
    Page("Send a test", "console_send", "/console/send", Section.TRY, 10),
    Page("Messages", "console_messages", "/console/messages", Section.MESSAGES, 10),
    Page("Batches", "console_batches", "/console/batches", Section.MESSAGES, 20),
    Page("Templates", "console_templates", "/console/templates", Section.MESSAGES, 30),
)
first_steps.register(
    FirstStep(
        step="test_message_sent",
        title="Send a message",
        text="From the console or with your API key.",
        button="Send one",
        url_name="console_send",
        order=40,
    )
)
