"""The hosted connect page, under APP_URL."""

from django.urls import path

from phone_numbers.hosted_connect.pages import connect_answer, connect_page

urlpatterns = [
    path("connect/<str:token>", connect_page, name="connect_page"),
    path("connect/<str:token>/answer", connect_answer, name="connect_answer"),
]
