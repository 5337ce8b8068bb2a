"""Calls of libraries that cover most of the Cloud API: messages, media, templates, flows, groups, settings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from given import (
    ACCOUNT,
    BODY,
    CUSTOMER,
    FLOW_JSON,
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
    until,
)


def pywa() -> Iterator[Call]:
    from pywa import WhatsApp
    from pywa.types import Button, Contact, FlowCategory, Industry, Section, SectionList, SectionRow
    from pywa.types.calls import SessionDescription
    from pywa.types.templates import BodyText, Template, TemplateCategory, TemplateLanguage

    client = WhatsApp(phone_id=PHONE, token=KEY, waba_id=ACCOUNT)
    client.api._session.base_url = GRAPH
    wa, kept = client, Kept()
    keep = kept.keeping

    yield "send_message", lambda: wa.send_message(CUSTOMER, "Hello")
    yield "buttons", lambda: wa.send_message(CUSTOMER, "Ok?", buttons=[Button("Yes", callback_data="y")])
    rows = SectionList("Pick", [Section("All", [SectionRow("One", callback_data="1")])])
    yield "list", lambda: wa.send_message(CUSTOMER, "Pick", buttons=rows)
    yield "send_image", lambda: wa.send_image(CUSTOMER, PICTURE)
    yield "send_document", lambda: wa.send_document(CUSTOMER, LINK, filename="a.pdf")
    yield "send_video", lambda: wa.send_video(CUSTOMER, LINK)
    yield "send_audio", lambda: wa.send_audio(CUSTOMER, LINK)
    yield "send_sticker", lambda: wa.send_sticker(CUSTOMER, LINK)
    yield "send_reaction", lambda: wa.send_reaction(CUSTOMER, "👍", RECEIVED)
    yield "remove_reaction", lambda: wa.remove_reaction(CUSTOMER, RECEIVED)
    yield "send_location", lambda: wa.send_location(CUSTOMER, 28.6, 77.2)
    yield "request_location", lambda: wa.request_location(CUSTOMER, "Where?")
    person = Contact(name=Contact.Name(formatted_name="Asha R", first_name="Asha"))
    yield "send_contact", lambda: wa.send_contact(CUSTOMER, person)
    yield "request_contact_info", lambda: wa.request_contact_info(CUSTOMER, "Your number?")
    yield "mark_message_as_read", lambda: wa.mark_message_as_read(RECEIVED)
    yield "indicate_typing", lambda: wa.indicate_typing(RECEIVED)
    yield "upload_media", keep("media", lambda: wa.upload_media(PICTURE, mime_type="image/jpeg"))
    yield "get_media_url", lambda: wa.get_media_url(MEDIA)
    yield "get_media_bytes", lambda: wa.get_media_bytes(url=wa.get_media_url(MEDIA).url)
    yield "delete_media", lambda: wa.delete_media(kept["media"].id)
    yield "get_business_account", wa.get_business_account
    yield "get_business_phone_number", wa.get_business_phone_number
    yield "get_business_phone_numbers", lambda: list(wa.get_business_phone_numbers())
    yield "get_business_phone_number_settings", wa.get_business_phone_number_settings
    yield (
        "update_conversational_automation",
        lambda: wa.update_conversational_automation(["Hi"]),
    )
    yield "update_display_name", lambda: wa.update_display_name("Asha Traders")
    yield "update_business_profile", lambda: wa.update_business_profile(industry=Industry.RETAIL)
    yield "get_business_profile", wa.get_business_profile
    yield "set_business_public_key", lambda: wa.set_business_public_key("-----BEGIN PUBLIC KEY-----")
    yield "update_commerce_settings", lambda: wa.update_commerce_settings(is_catalog_visible=True)
    yield "get_commerce_settings", wa.get_commerce_settings
    greeting = Template(
        name="greeting_pywa",
        language=TemplateLanguage.ENGLISH_US,
        category=TemplateCategory.UTILITY,
        components=[BodyText("Hello there.")],
    )
    yield "create_template", keep("template", lambda: wa.create_template(greeting))
    yield "get_template", lambda: wa.get_template(kept["template"].id)
    yield "get_templates", lambda: list(wa.get_templates())
    yield (
        "send_template",
        lambda: wa.send_template(CUSTOMER, TEMPLATE, TemplateLanguage.ENGLISH_US, params=[]),
    )
    yield "delete_template", lambda: wa.delete_template("greeting_pywa")
    flow = {"name": "booking_pywa", "categories": [FlowCategory.OTHER]}
    yield "create_flow", keep("flow", lambda: wa.create_flow(**flow).id)
    yield "update_flow_metadata", lambda: wa.update_flow_metadata(kept["flow"], name="booked_pywa")
    yield "update_flow_json", lambda: wa.update_flow_json(kept["flow"], FLOW_JSON)
    yield "get_flow", lambda: wa.get_flow(kept["flow"])
    yield "get_flows", lambda: list(wa.get_flows())
    yield "get_flow_assets", lambda: list(wa.get_flow_assets(kept["flow"]))
    yield "-draft", keep("draft", lambda: wa.create_flow("draft_pywa", [FlowCategory.OTHER]).id)
    yield "delete_flow", lambda: wa.delete_flow(kept["draft"])
    yield "publish_flow", lambda: wa.publish_flow(kept["flow"])
    yield "deprecate_flow", lambda: wa.deprecate_flow(kept["flow"])
    yield "create_qr_code", keep("code", lambda: wa.create_qr_code("Hello").code)
    yield "get_qr_code", lambda: wa.get_qr_code(kept["code"])
    yield "get_qr_codes", lambda: list(wa.get_qr_codes())
    yield "update_qr_code", lambda: wa.update_qr_code(kept["code"], "Bye")
    yield "delete_qr_code", lambda: wa.delete_qr_code(kept["code"])
    blocked = CUSTOMER[:-1] + "0"
    yield "block_users", lambda: wa.block_users([blocked])
    yield "get_blocked_users", lambda: list(wa.get_blocked_users())
    yield "unblock_users", lambda: wa.unblock_users([blocked])
    yield "get_call_permissions", lambda: wa.get_call_permissions(CUSTOMER)
    offer = SessionDescription(sdp_type="offer", sdp="v=0")
    yield "initiate_call", lambda: wa.initiate_call(CUSTOMER, offer)
    raw = {"sdp_type": "offer", "sdp": "v=0"}
    yield "-call", keep("call", lambda: wa.api.initiate_call(PHONE, CUSTOMER, None, raw)["calls"][0]["id"])
    yield "terminate_call", lambda: wa.terminate_call(kept["call"])
    yield "create_group", lambda: wa.create_group(subject="Friends")
    yield "get_groups", lambda: list(wa.get_groups())
    yield (
        "-group",
        keep("group", lambda: until(lambda: wa.api.get_active_groups(PHONE)["data"]["groups"])[0]["id"]),
    )
    yield "get_group", lambda: wa.get_group(kept["group"])
    yield "get_group_invite_link", lambda: wa.get_group_invite_link(kept["group"])
    yield "reset_group_invite_link", lambda: wa.reset_group_invite_link(kept["group"])
    yield "get_group_join_requests", lambda: list(wa.get_group_join_requests(kept["group"]))
    yield "remove_group_participants", lambda: wa.remove_group_participants(kept["group"], [CUSTOMER])
    yield (
        "update_group_settings",
        lambda: wa.update_group_settings(
            kept["group"], subject="Friends of ours", profile_picture=Path(PICTURE).read_bytes()
        ),
    )
    yield "pin_message", lambda: wa.pin_message(kept["group"], RECEIVED, expiration_days=4)
    yield "unpin_message", lambda: wa.unpin_message(kept["group"], RECEIVED)
    yield "delete_group", lambda: wa.delete_group(kept["group"])
    signup = {"message": "Offers", "confirmation_message": "Welcome", "accept_policy": True}
    link = {**signup, "privacy_policy_url": "https://shop.example/privacy"}
    yield "create_signup", keep("signup", lambda: wa.create_signup(**link).id)
    yield "get_signups", lambda: list(wa.get_signups())
    yield "get_signup", lambda: wa.get_signup(kept["signup"])
    yield "update_signup", lambda: wa.update_signup(kept["signup"], message="New offers")
    yield "set_username", lambda: wa.set_username("shop")
    yield "get_current_username", wa.get_current_username
    yield "get_reserved_usernames", wa.get_reserved_usernames
    yield "delete_username", wa.delete_username


def facebook_business() -> Iterator[Call]:
    from facebook_business.adobjects.whatsappbusinessaccount import WhatsAppBusinessAccount
    from facebook_business.api import FacebookAdsApi, FacebookSession

    FacebookSession.GRAPH = GATEWAY
    api = FacebookAdsApi.init(access_token=KEY, api_version="v25.0")
    account = WhatsAppBusinessAccount(ACCOUNT)

    def post(path: str, **params: Any) -> Any:
        return api.call("POST", [PHONE, path], params={"messaging_product": "whatsapp", **params})

    def send(kind: str, content: Any) -> Callable[[], Any]:
        return lambda: post("messages", to=CUSTOMER, type=kind, **{kind: content})

    yield "account", lambda: account.api_get(fields=["id", "name"])
    yield "phone_numbers", lambda: list(account.get_phone_numbers(fields=["id"]))
    yield "templates", lambda: list(account.get_message_templates(fields=["name"]))
    yield "subscribed_apps", lambda: account.create_subscribed_app()
    yield "text", send("text", {"body": "Hello"})
    yield "template", send("template", {"name": TEMPLATE, "language": {"code": LANGUAGE}})
    yield "image", send("image", {"link": LINK})
    yield "profile", lambda: post("whatsapp_business_profile", websites=["https://shop.example/"])
    made = {"name": "greeting_facebook", "language": LANGUAGE, "category": "UTILITY", "components": [BODY]}
    yield "create_template", lambda: account.create_message_template(params=made)
    yield "delete_template", lambda: account.delete_message_templates(params={"name": "greeting_facebook"})


def kapso_whatsapp_cloud_api() -> Iterator[Call]:
    from kapso_whatsapp import WhatsAppClient

    client = WhatsAppClient(access_token=KEY, base_url=GATEWAY, graph_version="v25.0", max_retries=0)
    to = {"phone_number_id": PHONE, "to": CUSTOMER}
    kept: dict[str, str] = {}
    messages, media, templates = client.messages, client.media, client.templates
    numbers, flows = client.phone_numbers, client.flows

    async def create_flow() -> None:
        made = await flows.create(waba_id=ACCOUNT, name="booking_kapso", categories=["OTHER"])
        kept["flow"] = made["id"]

    async def upload() -> None:
        content = Path(PICTURE).read_bytes()
        await media.upload(phone_number_id=PHONE, file=content, type="image/jpeg", filename="a.jpg")

    yield "messages.send_text", lambda: messages.send_text(**to, body="Hello")
    yield "messages.send_image", lambda: messages.send_image(**to, image={"link": LINK})
    yield (
        "messages.send_location",
        lambda: messages.send_location(
            **to, location={"latitude": 28.6, "longitude": 77.2, "name": "Shop", "address": "Street 1"}
        ),
    )
    yield (
        "messages.send_reaction",
        lambda: messages.send_reaction(**to, reaction={"message_id": RECEIVED, "emoji": "👍"}),
    )
    yield (
        "messages.send_interactive_buttons",
        lambda: messages.send_interactive_buttons(
            **to, body_text="Ok?", buttons=[{"id": "yes", "title": "Yes"}]
        ),
    )
    yield "media.upload", upload
    yield "media.get", lambda: media.get(media_id=MEDIA)
    yield "media.download", lambda: media.download(media_id=MEDIA)
    yield "templates.list", lambda: templates.list(business_account_id=ACCOUNT)
    yield (
        "templates.create",
        lambda: templates.create(
            business_account_id=ACCOUNT,
            name="greeting_kapso",
            language=LANGUAGE,
            category="UTILITY",
            components=[BODY],
        ),
    )
    yield "templates.delete", lambda: templates.delete(business_account_id=ACCOUNT, name="greeting_kapso")
    yield "phone_numbers.get_settings", lambda: numbers.get_settings(phone_number_id=PHONE)
    yield "phone_numbers.get_business_profile", lambda: numbers.get_business_profile(phone_number_id=PHONE)
    yield (
        "phone_numbers.update_business_profile",
        lambda: numbers.update_business_profile(phone_number_id=PHONE, about="Open till six"),
    )
    yield "flows.create", create_flow
    yield "flows.list", lambda: flows.list(waba_id=ACCOUNT)
    yield "flows.get", lambda: flows.get(flow_id=kept["flow"])
    yield (
        "flows.update_asset",
        lambda: flows.update_asset(flow_id=kept["flow"], asset=FLOW_JSON),
    )
    yield "flows.get_preview", lambda: flows.get_preview(flow_id=kept["flow"])
    yield "flows.publish", lambda: flows.publish(flow_id=kept["flow"])
    yield "flows.deprecate", lambda: flows.deprecate(flow_id=kept["flow"])
    yield "-close", client.close


def whatsloon() -> Iterator[Call]:
    from whatsloon.client import WhatsApp
    from whatsloon.groups.models import GroupCreate
    from whatsloon.messages import models
    from whatsloon.templates.models import TemplateSpec

    client, kept = WhatsApp(KEY, PHONE, base_url=GATEWAY), Kept()
    messages, groups, calls, business = client.messages, client.groups, client.calls, client.business

    def send(name: str, **content: Any) -> Call:
        return f"messages.send_{name}", lambda: getattr(messages, f"send_{name}")(to=CUSTOMER, **content)

    def connect() -> str:
        made: str = calls.connect(to=CUSTOMER, sdp_offer="v=0")["calls"][0]["id"]
        return made

    def listed() -> Any:
        return client.graph.get(path=f"/{PHONE}/groups").data["data"]["groups"]

    yield "send_text", lambda: client.send_text(to=CUSTOMER, body="Hello")
    yield send("text", body="Hello")
    for kind in ("image", "video", "audio", "document", "sticker"):
        yield send(kind, media_link=LINK)
    yield send("reaction", message_id=RECEIVED, emoji="👍")
    yield send("location", latitude=28.6, longitude=77.2)
    yield send("contacts", contacts=[{"name": NAME}])
    yield send("template", template_name=TEMPLATE, language_code=LANGUAGE)
    pick = models.ListMessage(body_text="Pick", button_text="Open", sections=SECTIONS)
    yield send("list", content=pick)
    button = models.ReplyButton(id="yes", title="Yes")
    yield send("reply_buttons", content=models.ReplyButtonsMessage(body_text="Ok?", buttons=[button]))
    see = models.CTAMessage(body_text="See", button_text="Open", button_url=LINK)
    yield send("cta", content=see)
    book = {"flow_token": "t", "flow_id": "1", "flow_cta": "Book", "flow_action": "navigate"}
    yield send("flow", content=models.FlowMessage(**book, body_text="Book"))
    yield send("address", content=models.AddressMessage(body="Where to?", country_iso_code="IN"))
    yield send("location_request", body_text="Where?")
    yield "messages.mark_read", lambda: messages.mark_read(message_id=RECEIVED)
    yield "messages.send_typing", lambda: messages.send_typing(message_id=RECEIVED)
    uploaded = kept.keeping("media", lambda: client.media.upload_file(PICTURE, "image/jpeg"))
    yield "media.upload_file", uploaded
    yield "media.get_url", lambda: client.media.get_url(MEDIA)
    yield "media.download", lambda: client.media.download(MEDIA)
    yield "media.delete", lambda: client.media.delete(kept["media"].media_id)
    greeting = TemplateSpec(name="greeting_loon", language=LANGUAGE, components=[BODY])
    yield "templates.create_template", lambda: client.templates.create_template(ACCOUNT, greeting)
    yield "templates.list_templates", lambda: client.templates.list_templates(ACCOUNT)
    yield "templates.delete_template", lambda: client.templates.delete_template(ACCOUNT, "greeting_loon")
    yield "business.get_account", lambda: business.get_account(ACCOUNT)
    yield "business.list_phone_numbers", lambda: business.list_phone_numbers(ACCOUNT)
    yield "business.get_phone_number", lambda: business.get_phone_number(PHONE)
    yield "groups.create_group", lambda: groups.create_group(GroupCreate(subject="Friends"))
    yield "groups.list_groups", groups.list_groups
    yield "-group", kept.keeping("group", lambda: until(listed)[0]["id"])
    yield "groups.get_group", lambda: groups.get_group(kept["group"])
    yield "groups.update_group", lambda: groups.update_group(kept["group"], subject="Friends of ours")
    yield "groups.list_join_requests", lambda: groups.list_join_requests(kept["group"])
    yield "groups.approve_join_request", lambda: groups.approve_join_request(kept["group"], "1")
    yield "groups.reject_join_request", lambda: groups.reject_join_request(kept["group"], "1")
    yield "groups.remove_participants", lambda: groups.remove_participants(kept["group"], [CUSTOMER])
    yield "groups.delete_group", lambda: groups.delete_group(kept["group"])
    yield "calls.get_permission", lambda: calls.get_permission(CUSTOMER)
    yield "calls.get_settings", calls.get_settings
    yield "calls.connect", kept.keeping("call", connect)
    yield "calls.pre_accept", lambda: calls.pre_accept(call_id=kept["call"], sdp_answer="v=0")
    yield "calls.accept", lambda: calls.accept(call_id=kept["call"], sdp_answer="v=0")
    yield "calls.terminate", lambda: calls.terminate(call_id=kept["call"])
    yield "-call", kept.keeping("call", connect)
    yield "calls.reject", lambda: calls.reject(call_id=kept["call"])
    yield "-close", client.close
