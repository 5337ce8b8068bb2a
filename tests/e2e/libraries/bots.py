"""Bots on public Python libraries for the Cloud API. Each replies to one received image with every kind of call that
its library supports.

`test_cloud_api_libraries.py` runs them in the environment of `requirements.txt`, with the library's name as argument.
The libraries are unmodified; a bot sets the base address as docs/cloud-api.md says. Each step is a line of JSON on
standard output.
"""

import asyncio
import hashlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from flask import Flask, request
from werkzeug.serving import make_server

GATEWAY, KEY, PHONE, ACCOUNT = (os.environ[name] for name in ("GATEWAY", "KEY", "PHONE", "ACCOUNT"))
VERIFY_TOKEN, SECRET, PORT, PICTURE = (
    os.environ[name] for name in ("VERIFY_TOKEN", "SECRET", "PORT", "PICTURE")
)
PICTURE_LINK, TEMPLATE, LANGUAGE = "https://shop.example/picture.jpg", "hello_world", "en_US"
ANSWER = "Thank you for the picture."
GRAPH = f"{GATEWAY}/v25.0"

Notification = dict[str, Any]


def report(step: str, **facts: Any) -> None:
    """Report a step to the test."""
    sys.stdout.write(json.dumps({"step": step, **facts}) + "\n")
    sys.stdout.flush()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def serve(app: Flask) -> None:
    server = make_server("127.0.0.1", int(PORT), app, threaded=True)
    report("listening")
    server.serve_forever()


def reporting(handle: Callable[..., None]) -> Callable[..., None]:
    """A handler whose failure is reported to the test."""

    def handled(*arguments: Any) -> None:
        try:
            handle(*arguments)
            report("done")
        except Exception:
            report("failed", error=traceback.format_exc())

    return handled


def app_for(
    handle: Callable[[Notification], None],
    *,
    verify: Callable[[bytes, str], None] = lambda body, signature: None,
) -> Flask:
    """A web server, for a library that has none."""
    app = Flask("bot")

    @app.get("/")
    def challenge() -> Any:
        if request.args["hub.verify_token"] != VERIFY_TOKEN:
            return "", 403
        return request.args["hub.challenge"]

    @app.post("/")
    def notification() -> Any:
        try:
            verify(request.get_data(), request.headers["X-Hub-Signature-256"])
        except Exception:
            return "", 401
        threading.Thread(target=handle, args=(request.get_json(),)).start()
        return "ok"

    return app


def image_of(notification: Notification) -> dict[str, Any] | None:
    """The image message of a notification. None for any other message."""
    value = notification["entry"][0]["changes"][0]["value"]
    message: dict[str, Any] = value.get("messages", [{}])[0]
    return message if message.get("type") == "image" else None


def pywa() -> None:
    from pywa import WhatsApp, filters
    from pywa.types import Industry
    from pywa.types.templates import TemplateLanguage

    app = Flask("bot")
    client = WhatsApp(
        phone_id=PHONE,
        token=KEY,
        waba_id=ACCOUNT,
        server=app,
        verify_token=VERIFY_TOKEN,
        app_secret=SECRET,
        webhook_endpoint="/",
    )
    client.api._session.base_url = GRAPH

    @client.on_message(filters.image)
    @reporting
    def answer(_: Any, message: Any) -> None:
        report("download", sha256=digest(message.image.get_bytes()))
        message.mark_as_read()
        report("read", id=message.id)
        report("text", id=message.reply_text(ANSWER).id)
        report("media", id=message.reply_image(PICTURE).id)
        sent = client.send_template(message.from_user.wa_id, TEMPLATE, TemplateLanguage.ENGLISH_US, params=[])
        report("template", id=sent.id)
        report("templates", names=[template.name for template in client.get_templates()])
        client.get_business_phone_number()
        client.update_business_profile(industry=Industry.RETAIL)
        assert client.get_business_profile().industry is Industry.RETAIL

    serve(app)


def heyoo() -> None:
    from heyoo import WhatsApp

    client = WhatsApp(token=KEY, phone_number_id=PHONE)
    client.base_url = client.v15_base_url = GRAPH
    client.url = f"{GRAPH}/{PHONE}/messages"

    @reporting
    def answer(notification: Notification) -> None:
        assert client.is_message(notification)
        customer, message_id = client.get_mobile(notification), client.get_message_id(notification)
        image = client.get_image(notification)
        path = client.download_media(
            client.query_media_url(image["id"]), image["mime_type"], f"{PICTURE}.got"
        )
        with open(path, "rb") as file:
            report("download", sha256=digest(file.read()))
        assert client.mark_as_read(message_id) == {"success": True}
        report("read", id=message_id)
        report("text", id=client.reply_to_message(message_id, customer, ANSWER)["messages"][0]["id"])
        uploaded = client.upload_media(PICTURE)["id"]
        report("media", id=client.send_image(uploaded, customer, link=False)["messages"][0]["id"])
        sent = client.send_template(TEMPLATE, customer, components=[], lang=LANGUAGE)
        report("template", id=sent["messages"][0]["id"])

    serve(app_for(answer))


def python_whatsapp_bot() -> None:
    from python_whatsapp_bot import Whatsapp

    client = Whatsapp(PHONE, KEY)
    client.base_url = GRAPH
    client.msg_url, client.media_url = f"{GRAPH}/{PHONE}/messages", f"{GRAPH}/{PHONE}/media"

    @reporting
    def answer(notification: Notification) -> None:
        message = image_of(notification)
        assert message is not None
        content = client.download_media_data(message["image"]["id"], "picture").content
        report("download", sha256=digest(content))
        assert client.mark_as_read(message).json() == {"success": True}
        report("read", id=message["id"])
        customer = message["from"]
        report("text", id=client.send_message(customer, ANSWER).json()["messages"][0]["id"])
        report("media", id=client.send_media_message(customer, PICTURE_LINK).json()["messages"][0]["id"])
        sent = client.send_template_message(customer, TEMPLATE, [], LANGUAGE)
        report("template", id=sent.json()["messages"][0]["id"])

    serve(app_for(answer))


def whatsapp_client() -> None:
    from whatsapp_client import (
        Template,
        TemplateLanguage,
        WebhookNotification,
        WhatsAppClient,
        verify_signature,
    )

    async def answer_image(notification: Notification) -> None:
        [parsed] = WebhookNotification.from_dict(notification)
        [message] = parsed.messages
        async with WhatsAppClient(phone_number_id=PHONE, access_token=KEY, base_url=GRAPH) as client:
            customer = message.from_
            report("text", id=(await client.send_text(to=customer, body=ANSWER)).messages[0].id)
            report("media", id=(await client.send_image(to=customer, link=PICTURE_LINK)).messages[0].id)
            template = Template(name=TEMPLATE, language=TemplateLanguage(code=LANGUAGE))
            report("template", id=(await client.send_template(to=customer, template=template)).messages[0].id)

    @reporting
    def answer(notification: Notification) -> None:
        asyncio.run(answer_image(notification))

    serve(
        app_for(
            answer,
            verify=lambda body, signature: verify_signature(
                body=body, signature=signature, app_secret=SECRET
            ),
        )
    )


BOTS = {
    "pywa": pywa,
    "heyoo": heyoo,
    "python-whatsapp-bot": python_whatsapp_bot,
    "whatsapp-client": whatsapp_client,
}
BOTS[sys.argv[1]]()
