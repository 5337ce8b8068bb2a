"""Texts of messages are formatted as in WhatsApp, and a customer's text never becomes markup of the page."""

from html.parser import HTMLParser

import pytest
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st

from console.templatetags.console import as_whatsapp
from console.tests.conversing import PNID, WA_ID, inbound
from messaging.tests.incoming import number_of
from tenants.models import Tenant


@pytest.mark.parametrize(
    ("written", "drawn"),
    [
        ("Order *4711* is _on its way_", "Order <strong>4711</strong> is <em>on its way</em>"),
        ("~500~ *_400_ rupees*", "<s>500</s> <strong><em>400</em> rupees</strong>"),
        ("2 * 3 * 4, snake_case_name, a*b*c, ** and __", "2 * 3 * 4, snake_case_name, a*b*c, ** and __"),
        ("*two\nlines*", "*two\nlines*"),
        ("code `*a*` and ```b\n_c_```", "code <code>*a*</code> and <code>b\n_c_</code>"),
        ("*<b>* & `<i>`", "<strong>&lt;b&gt;</strong> &amp; <code>&lt;i&gt;</code>"),
        ("(*yes*).", "(<strong>yes</strong>)."),
        ("", ""),
    ],
)
def test_marks_are_drawn(written: str, drawn: str) -> None:
    assert as_whatsapp(written) == drawn


class Nesting(HTMLParser):
    """Collects the text, and fails when tags overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"strong", "em", "s", "code"}
        assert not attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(alphabet="*_~` <>&\"'Z\n"))
@example("*a _b* c *d_ e*")
def test_no_text_brings_a_tag_crosses_one_or_loses_a_letter(written: str) -> None:
    parser = Nesting()
    parser.feed(as_whatsapp(written))
    parser.close()
    assert not parser.open
    marks = str.maketrans("", "", "*_~`")
    assert parser.text.translate(marks) == written.translate(marks)


@pytest.mark.django_db(transaction=True)
def test_a_conversation_shows_them(tenant: Tenant, browser: Client) -> None:
    number_of(tenant, waba_id="100200300400500", phone_number_id=PNID)
    inbound(tenant, "Is it *really* <script>free</script>?")
    page = browser.get(f"/console/conversations/{PNID}/{WA_ID}").content.decode()
    assert "Is it <strong>really</strong> &lt;script&gt;free&lt;/script&gt;?" in page
