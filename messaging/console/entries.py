"""Messaging in the console: entries in the navigation, and the last of the first steps."""

from tenants.console.frame import FirstStep, Page, register

register(
    pages=[
        Page("Send a test", "console_send", "/console/send", 10),
        Page("Messages", "console_messages", "/console/messages", 15),
        Page("Batches", "console_batches", "/console/batches", 20),
        Page("Templates", "console_templates", "/console/templates", 30),
    ],
    steps=[
        FirstStep(
            step="test_message_sent",
            title="Send a message",
            text="To your own phone, from this page or with your API key.",
            button="Send one",
            url_name="console_send",
            order=40,
        )
    ],
)
