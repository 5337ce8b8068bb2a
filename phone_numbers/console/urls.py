"""Routes of the number pages in the console."""

from django.urls import path

from phone_numbers.console import pages

urlpatterns = [
    path("console/numbers", pages.number_list, name="console_numbers"),
    path("console/numbers/connect", pages.connect, name="console_connect"),
    path("console/numbers/<str:phone_number_id>", pages.number, name="console_number"),
    path("console/numbers/<str:phone_number_id>/refresh", pages.refresh, name="console_number_refresh"),
    path("console/numbers/<str:phone_number_id>/subscribe", pages.subscribe, name="console_number_subscribe"),
    path("console/numbers/<str:phone_number_id>/register", pages.register, name="console_number_register"),
    path("console/numbers/<str:phone_number_id>/release", pages.release, name="console_number_release"),
]
