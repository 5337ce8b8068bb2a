"""The hosted connect page, under APP_URL."""

from django.urls import path

from phone_numbers.page_views import connect_answer, connect_page

urlpatterns = [
    path("connect/<str:token>", connect_page, name="connect_page"),
    path("connect/<str:token>/answer", connect_answer, name="connect_answer"),
]
