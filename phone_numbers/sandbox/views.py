"""`/v1/test/*`: the sandbox of a tenant, for test keys only (decision "Sandbox")."""

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import caller_of, tenant_of
from gateway.api.errors import InvalidRequest
from gateway.api.limits import waits_for_upstream
from gateway.api.pagination import limit_of, whole_list
from gateway.api.validation import checked
from gateway.roles import KeyScope
from phone_numbers.sandbox import control
from phone_numbers.sandbox.control import ENVIRONMENT, RECIPIENTS, TEXTS
from phone_numbers.serializers import NumberOut
from phone_numbers.views import UpstreamCallsView

STATUSES = ("sent", "delivered", "read", "played", "failed")
TEMPLATE_EVENTS = (
    "APPROVED",
    "REJECTED",
    "PENDING",
    "PAUSED",
    "DISABLED",
    "FLAGGED",
    "IN_APPEAL",
    "REINSTATED",
    "PENDING_DELETION",
    "DELETED",
    "LOCKED",
    "UNLOCKED",
    "ARCHIVED",
    "UNARCHIVED",
    "LIMIT_EXCEEDED",
)
REASONS = (
    "NONE",
    "ABUSIVE_CONTENT",
    "CATEGORY_NOT_AVAILABLE",
    "INCORRECT_CATEGORY",
    "INVALID_FORMAT",
    "PROMOTIONAL",
    "SCAM",
    "TAG_CONTENT_MISMATCH",
)
CATEGORIES = ("AUTHENTICATION", "MARKETING", "UTILITY")
QUALITIES = ("UNKNOWN", "GREEN", "YELLOW", "RED")
NUMBER_EVENTS = (
    "FLAGGED",
    "UNFLAGGED",
    "UPGRADE",
    "DOWNGRADE",
    "THROUGHPUT_UPGRADE",
    "NAME_APPROVED",
    "NAME_REJECTED",
    "PIN_CHANGED",
    "APP_REMOVED",
    "APP_RECONNECTED",
)


class TestRecipientOut(serializers.Serializer[Any]):
    to = serializers.CharField()
    behaviour = serializers.CharField()
    code = serializers.IntegerField(
        allow_null=True,
        help_text="WhatsApp's error code of messages to this recipient; null when they do not fail.",
    )


class TestTextOut(serializers.Serializer[Any]):
    text = serializers.CharField(
        help_text="The text that triggers the behaviour. It must be the last line of a text message, of a caption, or "
        "of the text above buttons."
    )
    behaviour = serializers.CharField()


class _OfNumber(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField(
        required=False,
        max_length=64,
        help_text="Meta's id of the sandbox number. Left out, it is the first number of the sandbox.",
    )


class _OfCustomer(_OfNumber):
    def get_fields(self) -> dict[str, Any]:
        # A class cannot declare a field named `from`.
        customer = serializers.CharField(help_text="The customer's phone number or business-scoped user id.")
        return {"from": customer, **super().get_fields()}


class TestInboundIn(_OfCustomer):
    """A customer's message. A type such as `image` has its content, in WhatsApp's form, in a member of that name."""

    type = serializers.CharField(required=False, help_text="The type of the message; `text` by default.")
    text = serializers.JSONField(
        required=False, help_text="The text that the customer writes, as a string or as WhatsApp's object."
    )
    name = serializers.CharField(
        required=False, help_text="The customer's profile name. Later messages of the customer keep it."
    )
    username = serializers.CharField(
        required=False, help_text="The customer's user name. Later messages of the customer keep it."
    )
    identity = serializers.ChoiceField(
        required=False,
        choices=["both", "phone", "user_id"],
        help_text="Which ids of the customer your events have. Later messages of the customer keep the choice.",
    )
    referral = serializers.JSONField(
        required=False, help_text="The ad or post from which the customer writes, as WhatsApp's object."
    )

    def get_fields(self) -> dict[str, Any]:
        # A field named `context` would hide the serializer's own attribute.
        context = serializers.JSONField(
            required=False,
            help_text="The message that the customer replies to: its id, or WhatsApp's object.",
        )
        return {**super().get_fields(), "context": context}


class TestInboundOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The id of the message. The event has it as `wamid`.")
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()


class TestNumberIn(serializers.Serializer[Any]):
    coexistence = serializers.BooleanField(
        default=False,
        help_text="Whether the number stays in use in the WhatsApp Business app, which has contacts and chats.",
    )


class TestEchoIn(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField(
        required=False,
        max_length=64,
        help_text="Meta's id of a sandbox number with `coexistence`. Left out, it is the first number of the sandbox.",
    )
    to = serializers.CharField(max_length=160, help_text="The customer's phone number.")
    text = serializers.CharField(
        max_length=4096, help_text="The text that the business writes in the WhatsApp Business app."
    )


class TestPreferenceIn(_OfCustomer):
    value = serializers.ChoiceField(choices=["stop", "resume"])


class TestPreferenceOut(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()
    value = serializers.CharField(
        help_text="`stop` or `resume`: whether the customer stopped or resumed marketing messages."
    )


class TestMessageOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()
    direction = serializers.CharField(
        help_text="Who wrote the message: the customer (`inbound`) or you (`outbound`)."
    )
    status = serializers.CharField(
        allow_null=True,
        help_text="The status that the customer's phone shows for the message; null for none.",
    )
    body = serializers.DictField(
        help_text="The message as you sent it, or, for a message of the customer, as your event has it."
    )
    reaction = serializers.CharField(
        allow_null=True, help_text="The emoji with which the message was reacted to; null for none."
    )
    change = serializers.CharField(
        allow_null=True,
        help_text="How the customer changed the message afterwards: `edited` or `deleted`; null without a change.",
    )


class TestCallIn(_OfCustomer):
    """A call by a customer."""

    name = serializers.CharField(
        required=False, help_text="The customer's profile name. Later messages of the customer keep it."
    )


class TestCallActionIn(serializers.Serializer[Any]):
    call_id = serializers.CharField(max_length=512, help_text="The id of the call, as your events have it.")
    action = serializers.ChoiceField(
        choices=["hang_up", "accept", "reject"],
        help_text="What the customer does. The customer can accept or reject only a call that you made.",
    )


class TestCallOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The id of the call, as your events have it.")
    phone_number_id = serializers.CharField()
    customer = serializers.CharField()
    is_incoming = serializers.BooleanField(
        help_text="Whether the business called the customer, so that the call came in on the customer's phone."
    )
    is_accepted = serializers.BooleanField(
        help_text="Whether the call was accepted. A call that was not accepted still rings."
    )


class TestStatusIn(serializers.Serializer[Any]):
    message_id = serializers.CharField(
        max_length=512, help_text="The wamid of a message that a number of the sandbox sent."
    )
    status = serializers.ChoiceField(choices=STATUSES)
    code = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=9_999_999,
        help_text="WhatsApp's error code, 131026 by default. Only for the status `failed`.",
    )


class TestStatusOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    status = serializers.CharField()


class TestTemplateIn(serializers.Serializer[Any]):
    """One decision about a template."""

    template_id = serializers.CharField(max_length=64, help_text="Meta's id of the template.")
    event = serializers.ChoiceField(required=False, choices=TEMPLATE_EVENTS)
    reason = serializers.ChoiceField(
        required=False, choices=REASONS, help_text="Why WhatsApp decides so. Only with `event`."
    )
    quality = serializers.ChoiceField(required=False, choices=QUALITIES)
    category = serializers.ChoiceField(required=False, choices=CATEGORIES)
    correct_category = serializers.ChoiceField(
        required=False,
        choices=CATEGORIES,
        help_text="The category that WhatsApp will give the template: its warning a day before the change.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        decisions = attrs.keys() - {"template_id", "reason"}
        if len(decisions) != 1:
            raise serializers.ValidationError(
                {"event": ["Send exactly one of event, quality, category and correct_category."]}
            )
        if "reason" in attrs and "event" not in attrs:
            raise serializers.ValidationError({"reason": ["Goes only with `event`."]})
        return attrs


class TestTemplateOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    language = serializers.CharField()
    status = serializers.CharField()
    category = serializers.CharField()
    quality = serializers.CharField()


class TestNumberEventIn(_OfNumber):
    event = serializers.ChoiceField(choices=NUMBER_EVENTS)


class TestNumberEventOut(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField(source="id")
    quality_rating = serializers.CharField()
    messaging_limit_tier = serializers.CharField()
    throughput_level = serializers.CharField(source="throughput")
    name_status = serializers.CharField()


class SandboxView(UpstreamCallsView):
    """The caller's sandbox."""

    tag = "Sandbox"
    scope = KeyScope.MESSAGES
    action_scopes: ClassVar = {
        "templates": KeyScope.TEMPLATES,
        "numbers": KeyScope.NUMBERS,
        "number_events": KeyScope.NUMBERS,
    }
    is_paged = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if caller_of(request).effective_environment != ENVIRONMENT:
            raise InvalidRequest("The sandbox needs a test key.", hint="Make one: POST /v1/api-keys.")

    @extend_schema(
        operation_id="list_test_recipients",
        summary="List the magic recipients",
        description="Returns the recipients of the sandbox that have a special behaviour. The last four digits of a "
        "recipient's number determine the behaviour.",
        responses=TestRecipientOut(many=True),
    )
    def recipients(self, request: Request) -> Response:
        return whole_list([recipient._asdict() for recipient in RECIPIENTS])

    @extend_schema(
        operation_id="list_test_texts",
        summary="List the magic texts",
        description="Returns texts with a special behaviour. When the last line of a message in the sandbox is such a "
        "text, it determines what happens to the message, or what the customer replies.",
        responses=TestTextOut(many=True),
    )
    def texts(self, request: Request) -> Response:
        return whole_list([text._asdict() for text in TEXTS])

    @extend_schema(
        operation_id="create_test_number",
        summary="Add a number to the sandbox",
        description="Adds a further number, because the sandbox already has one. A number of the sandbox is connected "
        "at once and needs no endpoint.",
        request=TestNumberIn,
        responses={201: NumberOut},
    )
    @waits_for_upstream
    def numbers(self, request: Request) -> Response:
        asked = checked(TestNumberIn(data=request.data))
        return Response(NumberOut(control.add_number(tenant_of(request).id, **asked)).data, status=201)

    @extend_schema(
        operation_id="send_test_inbound",
        summary="Let a customer write to the sandbox",
        description="Writes to a number of the sandbox as one of its customers. The events are the same as for live "
        "messages. `type` is any message type, whose object has WhatsApp's form. A text may be a plain string. Most "
        "other types have a default object.",
        request=TestInboundIn,
        responses={201: TestInboundOut},
    )
    @waits_for_upstream
    def inbound(self, request: Request) -> Response:
        if not isinstance(request.data, dict) or not isinstance(request.data.get("from"), str):
            raise InvalidRequest.of(**{"from": "Required: the customer's phone number or user id."})
        return Response(TestInboundOut(control.write(tenant_of(request).id, request.data)).data, status=201)

    @extend_schema(
        operation_id="send_test_echo",
        summary="Let the business write in its app",
        description="Simulates a message that the business sends to a sandbox customer in the WhatsApp Business app. "
        "The number must be a sandbox number with `coexistence`. The event `message.echo` is the same as for a live "
        "number.",
        request=TestEchoIn,
        responses={201: TestInboundOut},
    )
    @waits_for_upstream
    def echoes(self, request: Request) -> Response:
        asked = checked(TestEchoIn(data=request.data))
        return Response(TestInboundOut(control.echo(tenant_of(request).id, **asked)).data, status=201)

    @extend_schema(
        operation_id="set_test_preference",
        summary="Let a customer of the sandbox opt out",
        description="Stops or resumes marketing messages, as a customer does in WhatsApp's settings. The event "
        "`user.preferences` is the same as for a live number. Endpoints that name `customer.opt_out` also "
        "receive that event.",
        request=TestPreferenceIn,
        responses={201: TestPreferenceOut},
    )
    @waits_for_upstream
    def preferences(self, request: Request) -> Response:
        asked = checked(TestPreferenceIn(data=request.data))
        found = control.prefer(tenant_of(request).id, customer=asked.pop("from"), **asked)
        return Response(TestPreferenceOut(found).data, status=201)

    @extend_schema(
        operation_id="start_test_call",
        summary="Let a customer call in the sandbox",
        description="Calls a number of the sandbox as one of its customers. The event of the call is the same as "
        "for a live call, with a sample SDP. Accept or reject the call with `POST /{phone_number_id}/calls`. A call "
        "that nobody accepts ends after a minute.",
        request=TestCallIn,
        responses={201: TestCallOut},
    )
    @waits_for_upstream
    def calls(self, request: Request) -> Response:
        asked = {"phone_number_id": None, **checked(TestCallIn(data=request.data))}
        return Response(TestCallOut(control.call_business(tenant_of(request).id, **asked)).data, status=201)

    @extend_schema(
        operation_id="act_on_test_call",
        summary="Act on a call of the sandbox",
        description="Acts on a call as the customer: hangs up, or accepts or rejects a call that the business made.",
        request=TestCallActionIn,
        responses=TestCallOut,
    )
    @waits_for_upstream
    def act_on_call(self, request: Request) -> Response:
        asked = checked(TestCallActionIn(data=request.data))
        return Response(TestCallOut(control.act_on_call(tenant_of(request).id, **asked)).data)

    @extend_schema(
        operation_id="list_test_conversations",
        summary="Read the sandbox's messages",
        description="Returns the messages of one number of the sandbox in both directions, as the customers see them, "
        "newest first.",
        parameters=[
            OpenApiParameter(
                "phone_number_id",
                str,
                description="Meta's id of the sandbox number. Left out, it is the first number of the sandbox.",
            ),
            OpenApiParameter(
                "customer",
                str,
                description="Only messages with this customer: the phone number or the business-scoped user id.",
            ),
            OpenApiParameter(
                "limit", int, description="The largest number of messages to return, 1 to 200; 50 by default."
            ),
        ],
        responses=TestMessageOut(many=True),
    )
    @waits_for_upstream
    def conversations(self, request: Request) -> Response:
        found = control.messages(
            tenant_of(request).id,
            phone_number_id=query.text(request, "phone_number_id", longest=64),
            customer=query.text(request, "customer", longest=64),
            limit=limit_of(request),
        )
        return whole_list(TestMessageOut(found, many=True).data)

    @extend_schema(
        operation_id="set_test_status",
        summary="Set a message's status in the sandbox",
        description="Sets the status of a message that a number of the sandbox sent. The event, which is the "
        "same as for a live message, comes at once. The status may contradict earlier statuses, so that you can also "
        "test that case.",
        request=TestStatusIn,
        responses={201: TestStatusOut},
    )
    @waits_for_upstream
    def statuses(self, request: Request) -> Response:
        asked = checked(TestStatusIn(data=request.data))
        found = control.set_status(tenant_of(request).id, **asked)
        return Response(TestStatusOut(found).data, status=201)

    @extend_schema(
        operation_id="decide_test_template",
        summary="Decide about a template of the sandbox",
        description="Makes a decision about a template as WhatsApp's review does. Send exactly one of `event` (with "
        "`reason`), `quality`, `category` and `correct_category`. The event is the same as for a live template.",
        request=TestTemplateIn,
        responses={201: TestTemplateOut},
    )
    @waits_for_upstream
    def templates(self, request: Request) -> Response:
        asked = checked(TestTemplateIn(data=request.data))
        found = control.decide_template(tenant_of(request).id, **asked)
        return Response(TestTemplateOut(found).data, status=201)

    @extend_schema(
        operation_id="decide_test_number",
        summary="Decide about a number of the sandbox",
        description="Makes a decision about a number as WhatsApp does: its quality and messaging limit, throughput, "
        "display name or PIN. The event is the same as for a live number.",
        request=TestNumberEventIn,
        responses={201: TestNumberEventOut},
    )
    @waits_for_upstream
    def number_events(self, request: Request) -> Response:
        asked = checked(TestNumberEventIn(data=request.data))
        found = control.decide_number(tenant_of(request).id, **asked)
        return Response(TestNumberEventOut(found).data, status=201)
