"""The signature of Meta's notifications."""

import pytest

from messaging.notifications.signatures import sign, verify

SECRET = "sim_app_secret_0123456789abcdef"

# Computed by another program, over the exact bytes.
EMPTY = b'{"object":"whatsapp_business_account","entry":[]}'
ESCAPED = (
    rb'{"object":"whatsapp_business_account","entry":[{"id":"100200300400500","changes":[{"field":"messages",'
    rb'"value":{"messaging_product":"whatsapp","note":"caf\u00e9 \/ a\u0040b"}}]}]}'
)
VECTORS = [
    (EMPTY, "sha256=d32d45b1acf8e37d734b76e21c7e04866525f006be20421633408a581cbc656a"),
    (ESCAPED, "sha256=a6bf24e366dbcd85babda56f91368c6cd2c5e003a8113f9228c389cd2c227b18"),
]


@pytest.mark.parametrize(("body", "signature"), VECTORS)
def test_known_bodies_have_known_signatures(body: bytes, signature: str) -> None:
    assert sign(body, SECRET) == signature
    assert verify(body, signature, SECRET)


@pytest.mark.parametrize("body", [EMPTY + b" ", ESCAPED.replace(rb"\/", b"/"), EMPTY[:-1], b""])
def test_a_body_that_differs_by_one_byte_is_refused(body: bytes) -> None:
    assert not any(verify(body, signature, SECRET) for _, signature in VECTORS)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256=",
        "sha256",
        VECTORS[0][1].removeprefix("sha256="),
        VECTORS[0][1].replace("sha256", "sha1"),
        VECTORS[0][1][:-1],
        VECTORS[0][1] + "0",
        " " + VECTORS[0][1],
        VECTORS[0][1].upper(),
        VECTORS[0][1].replace("d", "ď"),
        "sha256=\udcff",
    ],
)
def test_any_other_header_is_refused(header: str | None) -> None:
    assert not verify(EMPTY, header, SECRET)


def test_another_secret_is_refused() -> None:
    assert not verify(EMPTY, VECTORS[0][1], SECRET + "0")


def test_nothing_verifies_while_no_secret_is_configured() -> None:
    assert not verify(EMPTY, sign(EMPTY, ""), "")
