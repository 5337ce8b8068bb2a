"""Sign-up: the form, the confirmation of the address, and the correction of an application."""

from typing import Any, cast
from uuid import UUID

from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from django import forms
from django.contrib import messages
from django.contrib.auth.hashers import check_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console import outbox, public
from console.log_in_and_passkeys import PASSWORD_HELP, SIGNED_UP_AS
from console.visit import Visit, flash_errors
from tenants.models import SignUp, Tenant, User
from tenants.names import check_name
from tenants.signup import screening, sign_ups, tax_ids

LONGEST_ADDRESS = 254
"""The maximum number of characters of an email address."""
SIGN_UP = "sign_up"
"""The session key of the sign-up's id in this browser. The id is None for an address that has an account."""
SIGN_UPS, MOST_SIGN_UPS = "sign_ups", 20
"""The session key of the ids of this browser's newest sign-ups, and their number."""


class ApplicationForm(forms.Form):
    """The data of a business at sign-up (specification 1.10)."""

    company = forms.CharField(
        label="Company name",
        max_length=200,
        validators=[check_name],
        help_text="As registered for GST or on the PAN card.",
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
    )
    website = forms.CharField(
        label="Website",
        max_length=screening.LONGEST_WEBSITE,
        help_text="For example example.in.",
        widget=forms.TextInput(attrs={"autocomplete": "url", "inputmode": "url"}),
    )
    tax_id = forms.CharField(
        label="GSTIN or PAN",
        max_length=20,
        help_text="The GSTIN (15 characters) if the company has one, else its PAN (10).",
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}
        ),
    )
    address = forms.CharField(
        label="Address",
        max_length=500,
        validators=[check_name],
        help_text="Building, street, area. It appears on invoices.",
        widget=forms.TextInput(attrs={"autocomplete": "street-address"}),
    )
    city = forms.CharField(
        label="City",
        max_length=100,
        validators=[check_name],
        widget=forms.TextInput(attrs={"autocomplete": "address-level2"}),
    )
    state_code = forms.ChoiceField(
        label="State or union territory",
        choices=[("", "Choose one"), *sorted(tax_ids.ADDRESS_STATES.items(), key=lambda state: state[1])],
        widget=forms.Select(attrs={"autocomplete": "address-level1"}),
    )
    pin_code = forms.RegexField(
        r"^[1-9][0-9]{5}\Z",
        label="PIN code",
        error_messages={"invalid": "A PIN code has six digits."},
        widget=forms.TextInput(attrs={"autocomplete": "postal-code", "inputmode": "numeric"}),
    )
    phone = forms.CharField(
        label="Phone",
        max_length=24,
        help_text="With country code, e.g. +91 98000 00001. For questions about your request.",
        widget=forms.TextInput(attrs={"autocomplete": "tel", "inputmode": "tel", "type": "tel"}),
    )

    def clean_website(self) -> str:
        try:
            return screening.parse_website(self.cleaned_data["website"])
        except screening.InvalidWebsiteError as error:
            raise ValidationError(str(error)) from None

    def clean_tax_id(self) -> tax_ids.TaxId:
        try:
            return tax_ids.parse(self.cleaned_data["tax_id"])
        except tax_ids.InvalidTaxIdError as error:
            raise ValidationError(str(error)) from None

    def clean_phone(self) -> str:
        try:
            return sign_ups.parse_phone(self.cleaned_data["phone"])
        except sign_ups.InvalidPhoneError as error:
            raise ValidationError(str(error)) from None

    def application(self) -> sign_ups.Application:
        """The form's values as an application."""
        values = {name: self.cleaned_data[name] for name in ApplicationForm.base_fields}
        tax: tax_ids.TaxId = values.pop("tax_id")
        return sign_ups.Application(**values, tax_id=tax.number, tax_id_type=tax.kind)


class SignUpForm(ApplicationForm):
    """The form of the sign-up: the person who signs up, and the business."""

    field_order = (
        "email",
        "password",
        "phone",
        "company",
        "website",
        "tax_id",
        "address",
        "city",
        "pin_code",
    )
    """The fields in the order of display, so that the summary of errors has the same order."""

    email = forms.EmailField(
        label="Business email",
        max_length=LONGEST_ADDRESS,
        help_text="At your company's own domain. You log in with it.",
        widget=forms.EmailInput(attrs={"autocomplete": "username"}),
    )
    password = forms.CharField(
        label="Password",
        max_length=128,
        strip=False,
        help_text=PASSWORD_HELP,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"].lower()
        domain = screening.domain_of(email)
        if domain is None or not screening.is_business(domain):
            raise ValidationError(
                f"Please use an address at your company's own domain. Addresses at {domain or 'this domain'} "
                "are open to everybody, so they do not show which company you act for."
            )
        address = f"{email.rpartition('@')[0]}@{domain}"
        # The domain in ASCII may be longer than the domain as it was typed.
        if len(address) > LONGEST_ADDRESS:
            raise ValidationError("This address is too long.")
        return address

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if password := cleaned.get("password"):
            person = User(email=cleaned.get("email", ""))
            person.company = cleaned.get("company", "")  # type: ignore[attr-defined]
            try:
                validate_password(password, person)
            except ValidationError as error:
                self.add_error("password", error)
            if self.errors and "password" not in self.errors:
                self.add_error("password", "Please type it again: a page never shows a password.")
        return cleaned


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def sign_up(request: HttpRequest) -> HttpResponse:
    """Show the sign-up form. A valid form gets the same response whether or not its email address has an account."""
    form = SignUpForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        email = form.cleaned_data["email"]
        if not ratelimit.consume(request, action="signup", key=email):
            return cast("HttpResponse", ratelimit.respond_429(request))
        sign_up_id = sign_ups.start(
            form.application(),
            email=email,
            password=form.cleaned_data["password"],
            ip=get_adapter().get_client_ip(request),
            agreed_texts=public.digests(),
        )
        request.session[SIGNED_UP_AS], request.session[SIGN_UP] = email, sign_up_id and str(sign_up_id)
        own = [*request.session.get(SIGN_UPS, []), str(sign_up_id)]
        request.session[SIGN_UPS] = own[-MOST_SIGN_UPS:]
        return redirect("sign_up_sent")
    return render(request, "console/sign_up.html", {"form": form}, status=400 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
def sign_up_sent(request: HttpRequest) -> HttpResponse:
    """After the sign-up, ask the person to check their email. POST sends the email again."""
    address = request.session.get(SIGNED_UP_AS)
    if request.method == "POST" and address is not None:
        if not ratelimit.consume(request, action="signup", key=address):
            return cast("HttpResponse", ratelimit.respond_429(request))
        sign_up_id = request.session.get(SIGN_UP)
        sign_ups.start_again(UUID(sign_up_id) if sign_up_id else None, email=address)
        messages.success(request, "We sent the email once more.")
        return redirect("sign_up_sent")
    context = {"address": address, "has_outbox": outbox.is_open()}
    return render(request, "console/sign_up_sent.html", context)


class ConfirmForm(forms.Form):
    """Proves that the person who confirms an address has chosen the password of the sign-up.

    A stranger may have sent the form with the person's address. In the browser that sent it, no field is needed.
    """

    password = forms.CharField(
        label="Password",
        max_length=128,
        strip=False,
        help_text="The password that you chose in the form.",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, *args: Any, sign_up: SignUp, is_own: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hash = sign_up.password
        if is_own:
            del self.fields["password"]

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        if not check_password(password, self._hash):
            raise ValidationError(
                "The form of this link has another password. Open the link of your own form, or sign up again."
            )
        return password


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    """The page of the mailed link. It has a button, because mail scanners open links. Only POST confirms
    the sign-up. In another browser than that of the form, it needs the form's password.
    """
    given = request.POST if request.method == "POST" else None
    try:
        waiting = sign_ups.find(token)
        is_own = str(waiting.id) in request.session.get(SIGN_UPS, [])
        if given is not None and not is_own and not ratelimit.consume(request, action="confirm_sign_up"):
            return cast("HttpResponse", ratelimit.respond_429(request))
        form = ConfirmForm(given, sign_up=waiting, is_own=is_own)
        if form.is_valid():
            return render(request, "console/confirmed.html", {"tenant": sign_ups.confirm(token)})
    except sign_ups.ConfirmationLinkError:
        return render(request, "console/link_error.html", status=410)
    context = {"sign_up": waiting, "form": form}
    return render(request, "console/confirm.html", context, status=400 if form.errors else 200)


def application(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the application of a business that awaits approval or was rejected. It can be corrected and submitted again.
    In any other status, redirect to the home page.
    """
    tenant = visit.tenant
    sign_up = SignUp.objects.filter(tenant=tenant).first()
    is_open = tenant.status in {Tenant.Status.PENDING_APPROVAL, Tenant.Status.REJECTED}
    if sign_up is not None and not is_open and request.method == "GET":
        # The person opened the link of an older mail. The home page shows the account's status.
        messages.info(request, "Your application has been decided: it can no longer be corrected.")
        return redirect("console")
    if sign_up is None or not is_open:
        raise Http404("There is no application to correct.")
    form = ApplicationForm(
        request.POST or None, initial={name: getattr(sign_up, name) for name in ApplicationForm.base_fields}
    )
    if request.method == "POST" and form.is_valid():
        with flash_errors(request):
            sign_ups.apply_again(form.application(), tenant_id=tenant.id, actor_user_id=visit.user.pk)
            messages.success(request, "Your application is with our team.")
        return redirect("console")
    return render(
        request,
        "console/application.html",
        {"tenant": tenant, "form": form},
        status=400 if form.errors else 200,
    )
