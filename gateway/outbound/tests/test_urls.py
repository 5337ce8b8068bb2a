"""URLs that a tenant may choose. They are sent as written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.outbound.addresses import parse_url
from gateway.outbound.client import InvalidUrlError, validate_url


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/",
        "HTTPS://Example.COM/Hook",
        "https://example.com:8443/hook?tenant=%C3%A4&x=1",
        "https://example.com?only=query",
        "https://example.com./trailing/dot",
        "https://münchen.example/hook",
        "https://xn--mnchen-3ya.example/hook",
        "https://203.0.113.7/",
        "https://[2001:db8::1]:9000/",
        "https://example.com/@name?mail=a@b",
        "https://example.com/" + "a" * (2048 - 20),
    ],
)
def test_accepted_unchanged(url: str) -> None:
    assert validate_url(url, allow_http=False, max_length=2048) == url


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "must begin with"),
        ("example.com/hook", "must begin with"),
        ("//example.com/hook", "must begin with"),
        ("http://example.com/hook", "must begin with https://."),
        ("ftp://example.com/hook", "must begin with"),
        ("file:///etc/passwd", "must begin with"),
        ("javascript:alert(1)", "must begin with"),
        ("https://user@example.com/", "user name or a password"),
        ("https://user:secret@example.com/", "user name or a password"),
        ("https://@example.com/", "user name or a password"),
        ("https://example.com#", "fragment"),
        ("https://example.com/hook#part", "fragment"),
        ("https://", "host"),
        ("https:///hook", "host"),
        ("https://:443/hook", "host"),
        ("https://?x", "host"),
        ("https://[::1", "host"),
        ("https://[nonsense]/", "host"),
        ("https://example.com:0/", "port"),
        ("https://example.com:65536/", "port"),
        ("https://example.com:-1/", "port"),
        ("https://example.com:https/", "port"),
        ("https://exam ple.com/", "whitespace"),
        ("https://example.com/a b", "whitespace"),
        (" https://example.com/", "whitespace"),
        ("https://example.com/\n", "whitespace"),
        ("https://example.com/\r\nX-Header: 1", "whitespace"),
        ("https://example.com/\x00", "control character"),
        ("https://example.com/\u202e", "control character"),
        ("https://exam\u200bple.com/", "control character"),
        ("https://example.com/\ud800", "control character"),
        ("https://example.com\\@127.0.0.1/", "backslash"),
        ("https://example.com/häken", "percent-encoded"),
        ("https://example.com/" + "a" * (2048 - 19), "2048 characters"),
    ],
)
def test_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(InvalidUrlError, match=sentence) as refused:
        validate_url(url, allow_http=False, max_length=2048)

    assert str(refused.value).endswith(".")


def test_http_where_it_is_allowed() -> None:
    assert (
        validate_url("http://localhost:9000/x", allow_http=True, max_length=2048) == "http://localhost:9000/x"
    )
    with pytest.raises(InvalidUrlError, match="https:// or http://"):
        validate_url("ws://localhost/", allow_http=True, max_length=2048)


@pytest.mark.parametrize(
    ("url", "host", "sent"),
    [
        ("https://Example.com", "example.com", "/"),
        ("https://example.com?a=1", "example.com", "/?a=1"),
        ("https://example.com/a/../b//c/%7e?x=%2f&y=a+b", "example.com", "/a/../b//c/%7e?x=%2f&y=a+b"),
        ("https://münchen.example/{id}", "xn--mnchen-3ya.example", "/{id}"),
    ],
)
def test_only_the_host_is_normalised(url: str, host: str, sent: str) -> None:
    parsed = parse_url(url)

    assert (parsed.raw_host, parsed.raw_path_qs) == (host, sent)


@given(st.text(max_size=60), st.sampled_from(["", "https://", "https://example.com", "https://["]))
def test_any_text_is_accepted_unchanged_or_refused(text: str, start: str) -> None:
    try:
        accepted = validate_url(start + text, allow_http=True, max_length=2048)
    except InvalidUrlError:
        return
    assert accepted == start + text
    parsed = parse_url(accepted)
    assert parsed.raw_host
    assert parsed.user is None
    assert accepted.split("?")[0].endswith(parsed.raw_path.removeprefix("/"))


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#\\?"), max_size=40),
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#\\"), min_size=1, max_size=40
    ),
)
def test_path_and_query_are_sent_byte_for_byte(path: str, query: str) -> None:
    url = validate_url(f"https://example.com:8443/{path}?{query}", allow_http=False, max_length=2048)

    assert parse_url(url).raw_path_qs == f"/{path}?{query}"
