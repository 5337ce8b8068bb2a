"""Password hashing: Argon2id, a few hashes at a time in a process.

The parameters are the smallest that OWASP's password storage cheat sheet names: 19 MiB and two passes take about 36 ms
of CPU, where Django's default, a million rounds of PBKDF2, takes about 300. Older hashes are made anew at the next
log-in.
"""

import threading

from django.contrib.auth.hashers import Argon2PasswordHasher

AT_ONCE = 4
"""Hashes of a process at the same moment: a flood of log-ins must not take 19 MiB for each of its threads."""

room = threading.BoundedSemaphore(AT_ONCE)


class Argon2idHasher(Argon2PasswordHasher):
    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        """The hash to store."""
        with room:
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Whether a password has a stored hash."""
        with room:
            return super().verify(password, encoded)
