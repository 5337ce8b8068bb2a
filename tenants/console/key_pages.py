"""Console pages of API keys: list, create, rotate, revoke. The full key is on one answer and never again."""

from uuid import UUID, uuid4

from django.conf import settings
from django.contrib import messages
from django.core.cache import cache
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from gateway.api.errors import Conflict
from gateway.clock import now
from gateway.request_log import search as request_log
from gateway.roles import Area
from tenants.console.forms import ApiKeyForm, RevokeForm
from tenants.console.frame import Visit, console_page, require_active
from tenants.credentials import api_keys
from tenants.models import ApiKey, Tenant

KEYS_PER_PAGE = 50
FORM_LIVES_SECONDS = 24 * 3600


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def key_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The keys, and a form for a new one. The answer to the form is the only page that ever shows the full key."""
    form = ApiKeyForm(request.POST or None)
    if request.method == "POST":
        require_active(visit)
        if form.is_valid():
            if _sent_before(request):
                return redirect("console_api_keys")
            new = api_keys.create(tenant=visit.tenant, actor_user_id=visit.user.pk, **form.cleaned_data)
            return _list_page(request, visit, new=new)
    return _list_page(request, visit, form=form)


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def rotate_key(request: HttpRequest, visit: Visit, key_id: UUID) -> HttpResponse:
    """A page that says what rotating does; POST does it."""
    key = _key(visit.tenant, key_id)
    if request.method != "POST":
        ends_at = api_keys.end_after_rotation(key)
        context = {"tenant": visit.tenant, "key": key, "form_id": uuid4(), "ends_at": ends_at}
        return render(request, "console/rotate_key.html", context)
    require_active(visit)
    if _sent_before(request):
        return redirect("console_api_keys")
    try:
        keys = ApiKey.objects.for_tenant(visit.tenant.id)
        new = api_keys.rotate(keys=keys, key_id=key_id, actor_user_id=visit.user.pk)
    except Conflict as error:
        messages.error(request, error.text)
        return redirect("console_api_keys")
    return _list_page(request, visit, new=new)


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def revoke_key(request: HttpRequest, visit: Visit, key_id: UUID) -> HttpResponse:
    """A page that asks for the key's name; POST with it revokes."""
    key = _key(visit.tenant, key_id)
    form = RevokeForm(request.POST or None, key_name=key.name)
    if request.method == "POST" and form.is_valid():
        require_active(visit)
        keys = ApiKey.objects.for_tenant(visit.tenant.id)
        api_keys.revoke(keys=keys, key_id=key_id, actor_user_id=visit.user.pk)
        messages.success(
            request, f"The key {key.prefix}… is revoked. It stops working everywhere within 30 seconds."
        )
        return redirect("console_api_keys")
    return render(
        request,
        "console/revoke_key.html",
        {"tenant": visit.tenant, "key": key, "form": form},
        status=400 if form.errors else 200,
    )


def _sent_before(request: HttpRequest) -> bool:
    """Whether this very form was sent already: a reload or a double click makes no second key."""
    form_id = request.POST.get("form_id", "")[:64]
    if not form_id or cache.add(f"key-form:{request.session.session_key}:{form_id}", 1, FORM_LIVES_SECONDS):
        return False
    messages.warning(
        request, "This form was sent already. Its key was shown once; make a new one if it is lost."
    )
    return True


def _key(tenant: Tenant, key_id: UUID) -> ApiKey:
    key = ApiKey.objects.for_tenant(tenant.id).filter(pk=key_id).first()
    if key is None:
        raise Http404("There is no such key.")
    return key


def _list_page(
    request: HttpRequest, visit: Visit, *, form: ApiKeyForm | None = None, new: api_keys.NewKey | None = None
) -> HttpResponse:
    """The list of keys; a new key is shown in a dialog above it."""
    rows = ApiKey.objects.for_tenant(visit.tenant.id).select_related("replaces").order_by("-id")
    ended = Q(revoked_at__isnull=False) | Q(expires_at__lte=now())
    show_ended = request.GET.get("ended") == "yes"
    page = Paginator(rows if show_ended else rows.exclude(ended), KEYS_PER_PAGE).get_page(
        request.GET.get("page")
    )
    calls = request_log.counts_by_key(tenant_id=visit.tenant.id, environment=visit.environment)
    context = {
        "tenant": visit.tenant,
        "new": new,
        "form": form or ApiKeyForm(),
        "form_id": uuid4(),
        "page": page,
        "rows": [(key, calls.get(key.prefix, 0)) for key in page],
        "days": settings.REQUEST_LOG_DAYS,
        "show_ended": show_ended,
        "any_ended": show_ended or rows.filter(ended).exists(),
        "now": now(),
    }
    status = 400 if form is not None and form.errors else 200
    response = render(request, "console/api_keys.html", context, status=status)
    if new is not None:
        response["Cache-Control"] = "no-store"
    return response
