"""The page of personal settings: name, time zone and theme. Staff without a business can open it too."""

from typing import cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from tenants.models import User

TIME_ZONES = (
    "Asia/Kolkata",
    "UTC",
    "Africa/Johannesburg",
    "Africa/Lagos",
    "Africa/Nairobi",
    "America/Chicago",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Colombo",
    "Asia/Dhaka",
    "Asia/Dubai",
    "Asia/Hong_Kong",
    "Asia/Jakarta",
    "Asia/Karachi",
    "Asia/Kathmandu",
    "Asia/Riyadh",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/London",
    "Pacific/Auckland",
)
"""The time zones to choose from, by their names in the IANA database."""


class PersonForm(forms.ModelForm):  # type: ignore[type-arg] # generic only in its stubs
    """The personal settings."""

    time_zone = forms.ChoiceField(
        label="Time zone",
        choices=[(name, name.partition("/")[2].replace("_", " ") or name) for name in TIME_ZONES],
        help_text="All pages show times in this zone.",
    )

    class Meta:
        model = User
        fields = ("name", "time_zone", "theme")
        help_texts = {"name": "Your colleagues see it beside your address."}


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def person(request: HttpRequest) -> HttpResponse:
    """Show and change the settings of the person who is logged in."""
    form = PersonForm(request.POST or None, instance=cast("User", request.user))
    if request.method == "POST" and form.is_valid():
        # The other columns, such as the role, may have changed meanwhile.
        form.save(commit=False).save(update_fields=list(form.fields))
        messages.success(request, "Saved.")
        return redirect("person")
    return render(
        request, "console/personal_settings.html", {"form": form}, status=400 if form.errors else 200
    )
