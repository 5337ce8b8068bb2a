from django.apps import AppConfig


class NumbersConfig(AppConfig):
    name = "phone_numbers"
    label = "numbers"
    verbose_name = "Numbers"
