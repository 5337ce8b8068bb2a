"""Routes of the number pages in the console."""

from django.urls import path

from phone_numbers.console import pages, phone_pages

urlpatterns = [
    path("console/phone", phone_pages.phone, name="console_phone"),
    path("console/phone/thread", phone_pages.thread, name="console_phone_thread"),
    path("console/phone/begin", phone_pages.begin, name="console_phone_begin"),
    path("console/phone/write", phone_pages.write, name="console_phone_write"),
    path("console/phone/file", phone_pages.file, name="console_phone_file"),
    path("console/numbers", pages.number_list, name="console_numbers"),
    path("console/numbers/connect", pages.connect, name="console_connect"),
    path("console/numbers/<str:phone_number_id>", pages.number, name="console_number"),
    path("console/numbers/<str:phone_number_id>/refresh", pages.refresh, name="console_number_refresh"),
    path("console/numbers/<str:phone_number_id>/subscribe", pages.subscribe, name="console_number_subscribe"),
    path("console/numbers/<str:phone_number_id>/register", pages.register, name="console_number_register"),
    path("console/numbers/<str:phone_number_id>/profile", pages.profile, name="console_number_profile"),
    path("console/numbers/<str:phone_number_id>/release", pages.release, name="console_number_release"),
]
