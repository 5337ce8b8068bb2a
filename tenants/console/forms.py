"""The console's forms: each sentence is for the person who typed, beside the field that it is about."""

import re
from typing import Any

from allauth.account.forms import ChangePasswordForm, LoginForm, ResetPasswordKeyForm
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from tenants.models import ApiKey, User
from tenants.names import check_name
from tenants.signup import email_domains, registration, tax_ids

ENVIRONMENTS = [
    (ApiKey.Environment.TEST, "Test: no real phone"),
    (ApiKey.Environment.LIVE, "Live: your customers"),
]
SIGNED_UP_AS = "signed_up_as"
"""The session's note of the address that the confirmation went to."""
PASSWORD_HELP = "At least 12 characters. A sentence is easy to remember."
_PHONE = re.compile(r"\+[1-9]\d{7,14}")


class LogInForm(LoginForm):  # type: ignore[misc]
    """allauth's form, which begins with the address that this browser signed up with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.request is not None:
            self.fields["login"].initial = self.request.session.get(SIGNED_UP_AS)


class ChangePassword(ChangePasswordForm):  # type: ignore[misc]
    """allauth's form, which says what a password needs as the sign-up does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["oldpassword"].label = "Current password"
        _name_new_password(self)


class NewPassword(ResetPasswordKeyForm):  # type: ignore[misc]
    """The form behind the link of a forgotten password, with the sign-up's words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _name_new_password(self)


def _name_new_password(form: forms.Form) -> None:
    """The words of the two fields of a new password; a placeholder would only repeat them."""
    form.fields["password1"].label = "New password"
    form.fields["password1"].help_text = PASSWORD_HELP
    form.fields["password2"].label = "New password, again"
    for field in form.fields.values():
        field.widget.attrs.pop("placeholder", None)


class ApplicationForm(forms.Form):
    """What a business tells at sign-up (specification 1.10)."""

    company = forms.CharField(
        label="Company name",
        max_length=200,
        validators=[check_name],
        help_text="As registered for GST or on the PAN card.",
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
    )
    website = forms.CharField(
        label="Website",
        max_length=255,
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
            return email_domains.parse_website(self.cleaned_data["website"])
        except email_domains.InvalidWebsiteError as error:
            raise ValidationError(str(error)) from None

    def clean_tax_id(self) -> tax_ids.TaxId:
        try:
            return tax_ids.parse(self.cleaned_data["tax_id"])
        except tax_ids.InvalidTaxIdError as error:
            raise ValidationError(str(error)) from None

    def clean_phone(self) -> str:
        phone = re.sub(r"[\s().-]", "", self.cleaned_data["phone"])
        if re.fullmatch(r"0?[6-9]\d{9}", phone):
            phone = f"+91{phone[-10:]}"
        if not _PHONE.fullmatch(phone):
            raise ValidationError("Give the number with its country code, e.g. +91 98000 00001.")
        return phone

    def application(self) -> registration.Application:
        """What was typed, for `registration`."""
        values = {name: self.cleaned_data[name] for name in ApplicationForm.base_fields}
        tax: tax_ids.TaxId = values.pop("tax_id")
        return registration.Application(**values, tax_id=tax.number, tax_id_type=tax.kind)


class SignUpForm(ApplicationForm):
    """Account onboarding: the person who signs up, and the business."""

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
    """As the page has them, so that its summary of errors goes from the top to the bottom."""

    email = forms.EmailField(
        label="Business email",
        max_length=254,
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
        domain = email_domains.domain_of(email)
        if domain is None or not email_domains.is_business(domain):
            raise ValidationError(
                f"Please use an address at your company's own domain. Addresses at {domain or 'this domain'} "
                "are open to everybody, so they do not show which company you act for."
            )
        return f"{email.rpartition('@')[0]}@{domain}"

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


class ApiKeyForm(forms.Form):
    """A new API key."""

    name = forms.CharField(
        label="Name", max_length=200, help_text="What will use it, e.g. web shop.", widget=forms.TextInput()
    )
    environment = forms.ChoiceField(
        label="Environment",
        choices=ENVIRONMENTS,
        initial=ApiKey.Environment.TEST,
    )


class DeviceForm(forms.Form):
    """The confirmation of a device log-in: which kind of key the program gets."""

    code = forms.CharField(max_length=20, widget=forms.HiddenInput())
    environment = forms.ChoiceField(
        label="Environment", choices=ENVIRONMENTS, initial=ApiKey.Environment.TEST
    )

    def __init__(self, *args: Any, sandbox: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if sandbox:
            self.fields["environment"].choices = ENVIRONMENTS[:1]  # type: ignore[attr-defined]


class RevokeForm(forms.Form):
    """Revoking cannot be undone: the name is typed in."""

    name = forms.CharField(
        label="Type the name of the key to confirm", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, *args: Any, key_name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key_name = key_name

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name.strip() != self.key_name.strip():
            raise ValidationError("This is not the name of the key.")
        return name
