"""URLs of numbers and connect sessions under `/v1`."""

from django.urls import path

from phone_numbers.sandbox.views import SandboxView
from phone_numbers.views import (
    AccountsView,
    AdminNumbersView,
    BusinessProfileView,
    ConnectSessionsView,
    NumbersView,
)

_NUMBER = "numbers/<str:phone_number_id>"

urlpatterns = [
    path("numbers", NumbersView.as_view({"get": "list"}), name="numbers"),
    path(
        "numbers/embedded-signup",
        NumbersView.as_view({"post": "embedded_signup"}),
        name="number-embedded-signup",
    ),
    path("numbers/connect", NumbersView.as_view({"post": "connect"}), name="number-connect"),
    path("numbers/migrate", NumbersView.as_view({"post": "migrate"}), name="number-migrate"),
    path("test/recipients", SandboxView.as_view({"get": "recipients"}), name="test-recipients"),
    path("test/texts", SandboxView.as_view({"get": "texts"}), name="test-texts"),
    path("test/statuses", SandboxView.as_view({"post": "statuses"}), name="test-statuses"),
    path("test/templates", SandboxView.as_view({"post": "templates"}), name="test-templates"),
    path("test/number-events", SandboxView.as_view({"post": "number_events"}), name="test-number-events"),
    path("test/numbers", SandboxView.as_view({"post": "numbers"}), name="test-numbers"),
    path("test/inbound", SandboxView.as_view({"post": "inbound"}), name="test-inbound"),
    path("test/echoes", SandboxView.as_view({"post": "echoes"}), name="test-echoes"),
    path("test/preferences", SandboxView.as_view({"post": "preferences"}), name="test-preferences"),
    path("test/calls", SandboxView.as_view({"post": "calls"}), name="test-calls"),
    path("test/call-actions", SandboxView.as_view({"post": "act_on_call"}), name="test-call-actions"),
    path("test/conversations", SandboxView.as_view({"get": "conversations"}), name="test-conversations"),
    path(_NUMBER, NumbersView.as_view({"get": "retrieve", "delete": "destroy"}), name="number"),
    path("accounts/<str:waba_id>", AccountsView.as_view({"delete": "destroy"}), name="account"),
    path(f"{_NUMBER}/health", NumbersView.as_view({"get": "health"}), name="number-health"),
    path(f"{_NUMBER}/app-data", NumbersView.as_view({"get": "app_data"}), name="number-app-data"),
    path(f"{_NUMBER}/register", NumbersView.as_view({"post": "register"}), name="number-register"),
    path(f"{_NUMBER}/deregister", NumbersView.as_view({"post": "deregister"}), name="number-deregister"),
    path(f"{_NUMBER}/two-step", NumbersView.as_view({"post": "two_step"}), name="number-two-step"),
    path(
        f"{_NUMBER}/request-code", NumbersView.as_view({"post": "request_code"}), name="number-request-code"
    ),
    path(f"{_NUMBER}/verify-code", NumbersView.as_view({"post": "verify_code"}), name="number-verify-code"),
    path(f"{_NUMBER}/subscribe", NumbersView.as_view({"post": "subscribe"}), name="number-subscribe"),
    path(
        f"{_NUMBER}/business-profile",
        BusinessProfileView.as_view({"get": "retrieve", "post": "update"}),
        name="number-business-profile",
    ),
    path("connect-sessions", ConnectSessionsView.as_view({"post": "create"}), name="connect-sessions"),
    path(
        "connect-sessions/<str:session_id>",
        ConnectSessionsView.as_view({"get": "retrieve"}),
        name="connect-session",
    ),
    path("admin/numbers", AdminNumbersView.as_view({"get": "list"}), name="admin-numbers"),
]
