"""Calls of libraries that send, and of an application: messages, media, templates, profiles."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from given import (
    ACCOUNT,
    BODY,
    BUTTONS,
    CALLBACK,
    CUSTOMER,
    GATEWAY,
    GRAPH,
    KEY,
    LANGUAGE,
    LINK,
    MEDIA,
    NAME,
    PHONE,
    PICTURE,
    RECEIVED,
    SECTIONS,
    TEMPLATE,
    Call,
    Kept,
)


def waba_sdk() -> Iterator[Call]:
    from waba_sdk import WhatsApp

    client = WhatsApp(KEY, PHONE, waba_id=ACCOUNT, base_url=GATEWAY, api_version="v25.0")
    yield "send_text", lambda: client.send_text(CUSTOMER, "Hello")
    yield "reply", lambda: client.reply(CUSTOMER, RECEIVED, "Hello")
    yield "send_image", lambda: client.send_image(CUSTOMER, url=LINK)
    yield "send_document", lambda: client.send_document(CUSTOMER, url=LINK)
    yield "send_location", lambda: client.send_location(CUSTOMER, 28.6, 77.2)
    yield "send_contacts", lambda: client.send_contacts(CUSTOMER, [{"name": NAME}])
    yield "react", lambda: client.react(CUSTOMER, RECEIVED, "👍")
    yield "send_buttons", lambda: client.send_buttons(CUSTOMER, "Ok?", [("yes", "Yes")])
    yield "send_list", lambda: client.send_list(CUSTOMER, "Pick", "Open", SECTIONS)
    yield "send_cta_url", lambda: client.send_cta_url(CUSTOMER, "See", "Open", LINK)
    yield "send_location_request", lambda: client.send_location_request(CUSTOMER, "Where?")
    yield "send_template", lambda: client.send_template(CUSTOMER, TEMPLATE, LANGUAGE)
    yield "mark_read", lambda: client.mark_read(RECEIVED, typing=True)
    yield "media.get_url", lambda: client.media.get_url(MEDIA)
    yield "media.download", lambda: client.media.download(MEDIA)
    yield "templates.list", lambda: client.templates.list()
    yield "webhook_override.set", lambda: client.webhook_override.set(CALLBACK, "open sesame")
    yield "webhook_override.get", lambda: client.webhook_override.get()
    yield "webhook_override.delete", lambda: client.webhook_override.delete()
    yield "-close", client.close


def whatsapp_cloud_api_client() -> Iterator[Call]:
    from whatsapp_cloud_api.client import WhatsAppClient

    client = WhatsAppClient(KEY, PHONE, base_url=GATEWAY, api_version="v25.0")
    yield "send_text", lambda: client.send_text(to=CUSTOMER, body="Hello")
    yield "send_template", lambda: client.send_template(to=CUSTOMER, name=TEMPLATE, language_code=LANGUAGE)
    yield "send_media", lambda: client.send_media(to=CUSTOMER, media_type="image", link=LINK)
    yield "upload_media", lambda: client.upload_media(file_path=PICTURE, mime_type="image/jpeg")
    yield "get_media", lambda: client.get_media(media_id=MEDIA)
    yield "mark_as_read", lambda: client.mark_as_read(message_id=RECEIVED)


def whatsapp_sdk() -> Iterator[Call]:
    from whatsapp_sdk import WhatsAppClient

    client = WhatsAppClient(PHONE, KEY, base_url=GATEWAY, api_version="v25.0")
    messages, media = client.messages, client.media
    button = {"type": "button", "body": {"text": "Ok?"}, "action": {"buttons": BUTTONS}}
    yield "send_text", lambda: messages.send_text(CUSTOMER, body="Hello")
    yield "send_image", lambda: messages.send_image(CUSTOMER, LINK)
    yield "send_document", lambda: messages.send_document(CUSTOMER, LINK)
    yield "send_audio", lambda: messages.send_audio(CUSTOMER, LINK)
    yield "send_video", lambda: messages.send_video(CUSTOMER, LINK)
    yield "send_location", lambda: messages.send_location(CUSTOMER, 28.6, 77.2)
    yield "send_interactive", lambda: messages.send_interactive(CUSTOMER, button)
    yield "mark_as_read", lambda: messages.mark_as_read(RECEIVED)
    yield "send_typing_indicator", lambda: messages.send_typing_indicator(RECEIVED)
    yield "templates.send", lambda: client.templates.send(CUSTOMER, TEMPLATE, LANGUAGE)
    yield "media.get_url", lambda: media.get_url(MEDIA)
    yield "media.download", lambda: media.download(MEDIA)
    yield "media.upload", lambda: media.upload(PICTURE, "image/jpeg")


def waclient() -> Iterator[Call]:
    from waclient import WhatsAppClient

    client = WhatsAppClient(PHONE, KEY)
    client.base_url = GRAPH
    yield "send_text", lambda: client.send_text(CUSTOMER, "Hello")
    yield "send_template", lambda: client.send_template(CUSTOMER, TEMPLATE, LANGUAGE)
    yield "send_image", lambda: client.send_image(CUSTOMER, image_url=LINK)
    yield "send_document", lambda: client.send_document(CUSTOMER, document_url=LINK)
    yield "send_location", lambda: client.send_location(CUSTOMER, 28.6, 77.2)
    yield "send_contacts", lambda: client.send_contacts(CUSTOMER, [{"name": NAME}])
    yield "mark_as_read", lambda: client.mark_as_read(RECEIVED)
    yield "upload_media", lambda: client.upload_media(PICTURE, "image/jpeg")
    yield "get_media_url", lambda: client.get_media_url(MEDIA)


def pygwan() -> Iterator[Call]:
    from pygwan import WhatsApp

    client = WhatsApp(KEY, PHONE)
    client.base_url = client.v15_base_url = GRAPH
    client.url = f"{GRAPH}/{PHONE}/messages"
    yield "send_message", lambda: client.send_message("Hello", CUSTOMER)
    yield "reply_to_message", lambda: client.reply_to_message(RECEIVED, CUSTOMER, "Hello")
    yield "send_reaction", lambda: client.send_reaction(RECEIVED, "👍", CUSTOMER)
    yield "send_template", lambda: client.send_template(TEMPLATE, CUSTOMER, [], LANGUAGE)
    yield "send_image", lambda: client.send_image(LINK, CUSTOMER)
    yield "send_document", lambda: client.send_document(LINK, CUSTOMER)
    yield "mark_as_read", lambda: client.mark_as_read(RECEIVED)
    yield "send_cta_url_button", lambda: client.send_cta_url_button(CUSTOMER, "Open", LINK, "See")
    yield "request_location", lambda: client.request_location(CUSTOMER, "Where?")


def wa_cloud_py() -> Iterator[Call]:
    from wa_cloud_py import WhatsApp

    client = WhatsApp(KEY, PHONE, verbose=False)
    client.base_url = GRAPH
    client.messages_url = f"{GRAPH}/{PHONE}/messages"
    client.commerce_url = f"{GRAPH}/{PHONE}/whatsapp_commerce_settings"
    client.business_profile_url = f"{GRAPH}/{PHONE}/whatsapp_business_profile"
    client.automation_url = f"{GRAPH}/{PHONE}/conversational_automation"
    yield "send_text", lambda: client.send_text(CUSTOMER, "Hello")
    yield "send_reaction", lambda: client.send_reaction(CUSTOMER, RECEIVED, "👍")
    yield "send_location", lambda: client.send_location(CUSTOMER, "Shop", "Street 1", 28.6, 77.2)
    yield "send_location_request", lambda: client.send_location_request(CUSTOMER, "Where?")
    yield "send_image", lambda: client.send_image(CUSTOMER, LINK)
    yield "send_cta_url", lambda: client.send_cta_url(CUSTOMER, "Open", LINK, "See")
    yield "mark_as_read", lambda: client.mark_as_read(RECEIVED)
    yield (
        "update_business_profile",
        lambda: client.update_business_profile(
            about="Open", address="Street 1", description="A shop", email="a@shop.example", vertical="RETAIL"
        ),
    )
    yield "update_cart_status", lambda: client.update_cart_status(True)
    yield "update_catalog_status", lambda: client.update_catalog_status(True)
    yield "get_commerce_settings", client.get_commerce_settings
    yield (
        "update_conversational_automation",
        lambda: client.update_conversational_automation(enable_welcome_message=True, prompts=["Hi"]),
    )


def pywce() -> Iterator[Call]:
    from pywce.modules.whatsapp import WhatsApp
    from pywce.modules.whatsapp.config import WhatsAppConfig
    from pywce.modules.whatsapp.model import MessageTypeEnum

    wa, kept, folder = WhatsApp(WhatsAppConfig(KEY, PHONE, "token")), Kept(), str(Path(PICTURE).parent)
    wa.base_url = GRAPH
    wa.url = f"{GRAPH}/{PHONE}/messages"

    def call(name: str, make: Callable[[], Any]) -> Call:
        """A call of a library that catches errors and then returns None. None counts as a failure."""

        def made() -> Any:
            answer = make()
            return False if answer is None else answer

        return name, made

    button = {"type": "button", "body": {"text": "Ok?"}, "action": {"buttons": BUTTONS}}
    yield call("send_message", lambda: wa.send_message(CUSTOMER, "Hello"))
    yield call("send_reaction", lambda: wa.send_reaction(CUSTOMER, "👍", RECEIVED))
    yield call("send_template", lambda: wa.send_template(CUSTOMER, TEMPLATE, []))
    yield call("send_location", lambda: wa.send_location(CUSTOMER, "28.6", "77.2", "Shop", "Street 1"))
    yield call("request_location", lambda: wa.request_location(CUSTOMER, "Where?"))
    yield call("send_media", lambda: wa.send_media(CUSTOMER, LINK, MessageTypeEnum.IMAGE, link=True))
    yield call("send_contacts", lambda: wa.send_contacts(CUSTOMER, [{"name": NAME}]))
    yield call("send_interactive", lambda: wa.send_interactive(CUSTOMER, button))
    yield call("mark_as_read", lambda: wa.mark_as_read(RECEIVED))
    yield call("show_typing_indicator", lambda: wa.show_typing_indicator(RECEIVED))
    yield call("upload_media", lambda: wa.util.upload_media(PICTURE))
    yield call("query_media_url", kept.keeping("url", lambda: wa.util.query_media_url(MEDIA)))
    yield call("download_media", lambda: wa.util.download_media(kept["url"], "got.jpg", folder))
    filled_in = {"id": MEDIA, "file_name": "flow.jpg"}
    yield call("download_flow_media", lambda: wa.util.download_flow_media(filled_in, folder))
    yield call("delete_media", lambda: wa.util.delete_media(MEDIA))


def py_whatsapp_cloud() -> Iterator[Call]:
    from py_whatsapp_cloud import core
    from py_whatsapp_cloud.client import WhatsAppClient

    core.BASE_URL = GRAPH
    client = WhatsAppClient(KEY, PHONE, ACCOUNT)
    yield "send_text", lambda: client.send_text(CUSTOMER, "Hello")
    yield "send_template", lambda: client.send_template(CUSTOMER, TEMPLATE, LANGUAGE)
    yield "mark_as_read", lambda: client.mark_as_read(RECEIVED)
    yield "get_business_profile", client.get_business_profile
    yield "upload_media", lambda: client.upload_media(PICTURE, "image/jpeg")
    yield "send_image", lambda: client.send_image(CUSTOMER, LINK, is_id=False)
    yield "send_document", lambda: client.send_document(CUSTOMER, LINK, "a.pdf", is_id=False)
    yield "download_media", lambda: client.download_media(MEDIA)


def py_whatsapp_cloudbot() -> Iterator[Call]:
    from wa_cloud import Bot, ContactSend, TemplateSend

    bot, kept = Bot(KEY, PHONE, api_base_url=GRAPH), Kept()

    async def upload() -> None:
        kept["media"] = (await bot.upload_media(PICTURE, "image/jpeg")).id

    async def info() -> None:
        kept["url"] = (await bot.get_media_info(MEDIA)).url

    yield "send_text", lambda: bot.send_text(CUSTOMER, "Hello")
    yield "send_image", lambda: bot.send_image(CUSTOMER, link=LINK)
    yield "send_video", lambda: bot.send_video(CUSTOMER, link=LINK)
    yield "send_audio", lambda: bot.send_audio(CUSTOMER, link=LINK)
    yield "send_document", lambda: bot.send_document(CUSTOMER, link=LINK)
    yield "send_sticker", lambda: bot.send_sticker(CUSTOMER, link=LINK)
    yield "send_location", lambda: bot.send_location(CUSTOMER, 28.6, 77.2)
    yield "send_contacts", lambda: bot.send_contacts(CUSTOMER, [ContactSend(name=NAME)])
    yield "send_reaction", lambda: bot.send_reaction(CUSTOMER, RECEIVED, "👍")
    buttons = [{"id": "yes", "title": "Yes"}]
    yield "send_interactive_button", lambda: bot.send_interactive_button(CUSTOMER, "Ok?", buttons)
    yield "send_interactive_list", lambda: bot.send_interactive_list(CUSTOMER, "Pick", "Open", SECTIONS)
    yield "send_interactive_cta_url", lambda: bot.send_interactive_cta_url(CUSTOMER, "See", "Open", LINK)
    template = {"name": TEMPLATE, "language": {"code": LANGUAGE}}
    yield "send_template", lambda: bot.send_template(CUSTOMER, TemplateSend(**template))
    yield "mark_as_read", lambda: bot.mark_as_read(RECEIVED, show_typing=True)
    yield "upload_media", upload
    yield "get_media_info", info
    yield "download_media", lambda: bot.download_media(kept["url"], f"{PICTURE}.got")
    yield "delete_media", lambda: bot.delete_media(kept["media"])


def jina_whatsapp_mcp() -> Iterator[Call]:
    os.environ |= {
        "META_ACCESS_TOKEN": KEY,
        "META_WABA_ID": ACCOUNT,
        "META_PHONE_NUMBER_ID": PHONE,
        "META_API_VERSION": "v25.0",
    }
    from whatsapp_mcp.meta_api import MetaAPI
    from whatsapp_mcp.server import mcp

    MetaAPI.BASE_URL = f"{GATEWAY}/"

    def tool(called: str, **arguments: Any) -> Call:
        """Call a tool as an agent does. The text of the result reports success or failure."""

        async def make() -> Any:
            content = await mcp.call_tool(called, arguments)
            blocks = content[0] if isinstance(content, tuple) else content
            return json.loads(blocks[0].text)

        return called, make

    greeting = {"name": "greeting_jina", "category": "UTILITY", "language": LANGUAGE, "components": [BODY]}
    yield tool("create_template", **greeting)
    yield tool("list_templates")
    yield tool("get_template_detail", template_name="greeting_jina")
    yield tool("check_template_status", template_name="greeting_jina")
    yield tool("delete_template", template_name="greeting_jina")
    sent = {"template_name": TEMPLATE, "language": LANGUAGE}
    yield tool("send_template_message", to=CUSTOMER, **sent)
    yield tool("send_bulk_template_messages", to_list=[CUSTOMER], **sent)


def heyoo() -> Iterator[Call]:
    from heyoo import WhatsApp

    client, kept = WhatsApp(token=KEY, phone_number_id=PHONE), Kept()
    client.base_url = client.v15_base_url = GRAPH
    client.url = f"{GRAPH}/{PHONE}/messages"
    yield "send_message", lambda: client.send_message("Hello", CUSTOMER)
    yield "send_reaction", lambda: client.send_reaction("👍", RECEIVED, CUSTOMER)
    yield "reply_to_message", lambda: client.reply_to_message(RECEIVED, CUSTOMER, "Hello")
    yield "send_template", lambda: client.send_template(TEMPLATE, CUSTOMER, [], LANGUAGE)
    yield "send_location", lambda: client.send_location(28.6, 77.2, "Shop", "Street 1", CUSTOMER)
    yield "send_image", lambda: client.send_image(LINK, CUSTOMER)
    yield "send_sticker", lambda: client.send_sticker(LINK, CUSTOMER)
    yield "send_audio", lambda: client.send_audio(LINK, CUSTOMER)
    yield "send_video", lambda: client.send_video(LINK, CUSTOMER)
    yield "send_document", lambda: client.send_document(LINK, CUSTOMER)
    text = {"messaging_product": "whatsapp", "type": "text", "text": {"body": "Hello"}}
    yield "send_custom_json", lambda: client.send_custom_json(text, CUSTOMER)
    yield "send_contacts", lambda: client.send_contacts([{"name": NAME}], CUSTOMER)
    pick = {"body": "Pick", "action": {"button": "Open", "sections": SECTIONS}}
    yield "send_button", lambda: client.send_button(pick, CUSTOMER)
    ask = {"type": "button", "body": {"text": "Ok?"}, "action": {"buttons": BUTTONS}}
    yield "send_reply_button", lambda: client.send_reply_button(ask, CUSTOMER)
    yield "mark_as_read", lambda: client.mark_as_read(RECEIVED)
    yield "upload_media", kept.keeping("media", lambda: client.upload_media(PICTURE))
    yield "query_media_url", kept.keeping("url", lambda: client.query_media_url(MEDIA))
    yield "download_media", lambda: client.download_media(kept["url"], "image/jpeg", f"{PICTURE}.got")
    yield "delete_media", lambda: client.delete_media(kept["media"]["id"])


def python_whatsapp_bot() -> Iterator[Call]:
    from python_whatsapp_bot import Whatsapp

    client = Whatsapp(PHONE, KEY)
    client.base_url = GRAPH
    client.msg_url, client.media_url = f"{GRAPH}/{PHONE}/messages", f"{GRAPH}/{PHONE}/media"
    yield "send_message", lambda: client.send_message(CUSTOMER, "Hello")
    yield "reply_message", lambda: client.reply_message(CUSTOMER, "Hello", RECEIVED)
    yield "send_template_message", lambda: client.send_template_message(CUSTOMER, TEMPLATE, [], LANGUAGE)
    yield "send_media_message", lambda: client.send_media_message(CUSTOMER, LINK)
    yield "mark_as_read", lambda: client.mark_as_read({"id": RECEIVED})
    yield "get_media_url", lambda: client.get_media_url(MEDIA)
    yield "download_media_data", lambda: client.download_media_data(MEDIA, "picture")
    yield "upload_media", client.upload_media


def whatsapp_client() -> Iterator[Call]:
    import whatsapp_client as library

    client = library.WhatsAppClient(phone_number_id=PHONE, access_token=KEY, base_url=GRAPH)
    yield "send_text", lambda: client.send_text(to=CUSTOMER, body="Hello")
    yield "send_image", lambda: client.send_image(to=CUSTOMER, link=LINK)
    yield "send_audio", lambda: client.send_audio(to=CUSTOMER, link=LINK)
    yield "send_video", lambda: client.send_video(to=CUSTOMER, link=LINK)
    yield "send_document", lambda: client.send_document(to=CUSTOMER, link=LINK)
    yield "send_sticker", lambda: client.send_sticker(to=CUSTOMER, link=LINK)
    yield "send_location", lambda: client.send_location(to=CUSTOMER, latitude=28.6, longitude=77.2)
    person = library.ContactInfo(name=library.ContactName(**NAME))
    yield "send_contacts", lambda: client.send_contacts(to=CUSTOMER, contacts=[person])
    template = library.Template(name=TEMPLATE, language=library.TemplateLanguage(code=LANGUAGE))
    yield "send_template", lambda: client.send_template(to=CUSTOMER, template=template)
    button = library.ReplyButton(id="yes", title="Yes")
    yield "send_buttons", lambda: client.send_buttons(to=CUSTOMER, body="Ok?", buttons=[button])
    section = library.ListSection(title="All", rows=[library.ListRow(id="one", title="One")])
    pick = {"body": "Pick", "button_text": "Open", "sections": [section]}
    yield "send_list", lambda: client.send_list(to=CUSTOMER, **pick)
    yield "-close", client.aclose
