"""E-mail domains that may sign up, and the form of a website."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.models import EmailDomainRule
from tenants.signup import screening


@pytest.mark.django_db
@pytest.mark.parametrize(
    "domain",
    [
        *(
            "gmail.com",
            "yahoo.co.in",
            "rediffmail.com",
            "outlook.com",
            "zohomail.in",
            "hey.com",
            "mail.gmail.com",
        ),
        *("mailinator.com", "bsnl.in", "privaterelay.appleid.com", "co.in", "localhost", ""),
    ],
)
def test_free_and_disposable_mail_is_no_business(domain: str) -> None:
    assert not screening.is_business(domain)


@pytest.mark.django_db
@pytest.mark.parametrize("domain", ["infosys.com", "mail.shop.co.in", "xn--bcher-kva.example.com"])
def test_a_companys_own_domain_is_one(domain: str) -> None:
    assert screening.is_business(domain)


@pytest.mark.django_db
def test_staff_have_the_last_word_and_the_nearest_rule_counts() -> None:
    EmailDomainRule.objects.create(domain="Zoho.com ", verdict="allow")
    EmailDomainRule.objects.create(domain="Rival.example.com.", verdict="block")
    EmailDomainRule.objects.create(domain="good.rival.example.com", verdict="allow")
    assert screening.is_business("zoho.com")
    assert not screening.is_business("mail.rival.example.com")
    assert screening.is_business("mail.good.rival.example.com")


@pytest.mark.parametrize(
    ("text", "website"),
    [
        ("Example.IN", "https://example.in"),
        ("http://www.example.in/", "https://www.example.in"),
        ("https://example.in/shop/?a=b#c", "https://example.in/shop"),
        ("bücher.in", "https://xn--bcher-kva.in"),
    ],
)
def test_a_website_is_made_https(text: str, website: str) -> None:
    assert screening.parse_website(text) == website


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "example",
            "co.in",
            "10.0.0.1",
            "https://[::1]/",
            "example.in:8080",
            "user@example.in",
            "a b.in",
        ),
        *("ftp://example.in", "javascript:alert(1)", "http://", "https://example.in:x"),
    ],
)
def test_what_is_no_website_is_refused(text: str) -> None:
    with pytest.raises(screening.InvalidWebsiteError):
        screening.parse_website(text)


@given(st.text(max_size=60))
def test_any_text_is_a_website_or_refused(text: str) -> None:
    try:
        website = screening.parse_website(text)
    except screening.InvalidWebsiteError:
        return
    assert website.startswith("https://")
    assert screening.website_domain(website)
