from django.apps import AppConfig


class MessagingConfig(AppConfig):
    name = "messaging"
    verbose_name = "Messaging"

    def ready(self) -> None:
        from gateway import web_start
        from messaging import checks, send_replay  # noqa: F401 - checks register themselves

        web_start.register(send_replay.start)
