"""The credentials of the authorisation matrix, and the answer that each of them gets at a route.

`refusal` specifies the admission in a few lines. It reads only the fields of a `Credential` and the declarations of a
route, so a new route or credential needs no list of expected answers.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from console.tests.pages import CHANGES, READS
from gateway.api.authentication import TENANT_HEADER, Environment
from gateway.clock import now
from gateway.roles import ALL_SCOPES, LIVE_SCOPES, NUMBER_SCOPES, Area, KeyScope, Role
from tenants import platform_apps
from tenants.connected_apps import connections
from tenants.credentials import api_keys, bearer_tokens, key_cache
from tenants.models import ApiKey, AppConnection, ConsoleSession, PlatformApp, Tenant, User
from tenants.tests.connected_apps import tokens_of
from tests.api_contract.authorisation import Kind, World
from tests.fixtures import Api

Refusal = tuple[int, str]
"""Status and code of a rejection."""

ENVIRONMENTS: tuple[Environment, ...] = ("live", "test")
UNAUTHORIZED: Refusal = (401, "unauthorized")
FORBIDDEN: Refusal = (403, "forbidden")
NOT_FOUND: Refusal = (404, "not_found")
ADMITTED = {"app": {"app_key"}, "staff": {"staff"}, "console": {"staff", "console_user"}}
"""The kinds of credentials that are admitted by each kind of route that does not concern a single tenant."""


TURNS = 8
"""Similar credentials are divided among at most this many routes (`Credentials.of_route`)."""


class Declared(Protocol):
    """What a route declares about its callers."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def scope(self) -> KeyScope | None: ...
    @property
    def area(self) -> Area | None: ...
    @property
    def takes_connected_apps(self) -> bool: ...
    @property
    def keeps_to_numbers(self) -> bool: ...
    @property
    def open_to_any_status(self) -> bool: ...


@dataclass(frozen=True)
class Credential:
    """A credential, with the facts that decide its admission. An invalid or ended credential has no kind."""

    name: str
    api: Api
    kind: Literal["tenant_key", "app_key", "console_user", "connected_app", "staff"] | None = None
    tenant: Tenant | None = None
    """The tenant that the credential acts on. A platform key names the tenant in a header."""
    app: PlatformApp | None = None
    environment: Environment = "live"
    scopes: frozenset[KeyScope] = ALL_SCOPES
    role: Role | None = None
    names_no_tenant: bool = False
    names_foreign_tenant: bool = False
    is_limited: bool = False
    """Whether the credential is limited to a number that has no objects."""
    about: KeyScope | None = None
    """The only scope that the credential has, or the only scope that it lacks."""

    @property
    def world(self) -> tuple[Tenant | None, Environment]:
        """The tenant and the environment whose objects the credential can access."""
        return (
            self.tenant,
            "test" if self.tenant is not None and self.tenant.sandbox else self.environment,
        )


def refusal(credential: Credential, route: Declared) -> Refusal | None:
    """Return the rejection of a credential at a route, or None if the route admits it."""
    if route.kind == "open":
        return None
    if credential.kind is None or (credential.kind == "connected_app" and not route.takes_connected_apps):
        return UNAUTHORIZED
    if route.kind != "tenant":
        return None if credential.kind in ADMITTED[route.kind] else FORBIDDEN
    if credential.kind == "staff":
        return FORBIDDEN
    if credential.kind == "app_key" and credential.names_no_tenant:
        return 400, "invalid_request"
    if credential.names_foreign_tenant:
        return NOT_FOUND if credential.kind == "app_key" else FORBIDDEN
    assert credential.tenant is not None
    if credential.tenant.status != "active" and not route.open_to_any_status:
        is_suspended = credential.tenant.status == "suspended"
        return 403, "tenant_suspended" if is_suspended else "tenant_not_approved"
    allowed = READS if route.method == "GET" else CHANGES
    if route.area is not None and credential.role and route.area not in allowed[credential.role]:
        return FORBIDDEN
    if route.scope is not None and lacks(credential, route.scope):
        return FORBIDDEN
    if credential.is_limited and route.scope is not None and not route.keeps_to_numbers:
        return FORBIDDEN
    return None


def declared_by(route: Declared) -> tuple[Hashable, ...]:
    """Return the declarations of a route that decide about credentials without a single scope."""
    of_tenant = (route.area,) if route.kind == "tenant" else ()
    also = (route.takes_connected_apps, route.keeps_to_numbers, route.open_to_any_status)
    return (route.kind, route.method == "GET", *of_tenant, *also)


def turns(declarations: Mapping[str, Hashable]) -> dict[str, tuple[int, int]]:
    """Divide similar credentials among up to `TURNS` routes with the same declarations.

    Returns for each route its place among these routes, and the number of routes that divide the credentials.
    """
    alike: dict[Hashable, list[str]] = defaultdict(list)
    for name, declared in declarations.items():
        alike[declared].append(name)
    return {
        name: (place, min(TURNS, len(names))) for names in alike.values() for place, name in enumerate(names)
    }


def lacks(credential: Credential, scope: KeyScope) -> bool:
    """Return whether a key lacks a scope or may not use the scope.

    A test key may not use scopes that change what both environments share.
    """
    assert credential.tenant is not None
    is_shared = scope in LIVE_SCOPES and not credential.tenant.sandbox
    return scope not in credential.scopes or (is_shared and credential.environment == "test")


def details_of(credential: Credential, scope: KeyScope) -> dict[str, object]:
    """Return the details of the rejection of a key.

    They name the required scope, and either the scopes of the key or the required environment.
    """
    if scope not in credential.scopes:
        return {"scope": scope, "scopes": sorted(credential.scopes)}
    return {"scope": scope, "environment": "live"}


@dataclass
class Credentials:
    """Credentials of every kind: those of a tenant, its neighbours, platforms and staff, including invalid and ended
    ones.
    """

    world: World
    all: list[Credential] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.all = [
            *self._made_up(),
            *self._ended(),
            *self._keys(),
            *self._platform_keys(),
            *self._members(),
            *self._connected_apps(),
            Credential("staff", _of(_superuser("staff")), "staff"),
            Credential("staff naming a tenant", _of(_superuser("staff-2"), self.world.tenant), "staff"),
        ]
        self._by_name = {each.name: each for each in self.all}
        assert len(self._by_name) == len(self.all)

    def __getitem__(self, name: str) -> Credential:
        return self._by_name[name]

    def of_route(
        self, route: Declared, answer: Callable[[Credential], Refusal | None], turn: tuple[int, int]
    ) -> Iterator[Credential]:
        """Yield the credentials to try at a route.

        A key that has or lacks a single scope is tried only if the route requires that scope. Credentials that are
        similar and expect the same answer are divided among routes with the same declarations. Each route gets at least
        one of them.
        """
        if route.kind == "open":
            yield from (self["nobody"], self["owner key"], self["staff"])
            return
        scope = route.scope if route.kind == "tenant" else None
        alike: dict[Hashable, list[Credential]] = defaultdict(list)
        for each in self.all:
            if each.about in {None, scope}:
                is_own = each.tenant == self.world.tenant
                alike[each.kind, is_own, each.environment, each.about, answer(each)].append(each)
        place, sharing = turn
        for same in alike.values():
            step = min(sharing, len(same))
            yield from same[place % step :: step]

    def _made_up(self) -> Iterator[Credential]:
        yield Credential("nobody", Api(None))
        for token in (f"wb_live_{'x' * 40}", f"wbc_{'x' * 43}", f"{connections.ACCESS_PREFIX}{'x' * 43}"):
            yield Credential(f"made up {token[:8]}", Api(token))

    def _ended(self) -> Iterator[Credential]:
        for name, change in (("revoked", {"revoked_at": now()}), ("expired", {"expires_at": now()})):
            for owner in ({"tenant": self.world.tenant}, {"app": self.world.app}):
                new = api_keys.create(name=name, environment="live", **owner)  # type: ignore[arg-type]
                _changed(new.row, **change)
                yield Credential(f"{name} key of a {next(iter(owner))}", Api(new.key))
        for kind, owns in (("member", {"tenant": self.world.tenant}), ("staff", {"is_staff": True})):
            for end in ("expired", "of a former password", "of an inactive person"):
                name = f"session of a {kind}, {end}"
                user = User.objects.create_user(f"{len(name)}-{kind}@ended.example", "pw", **owns)
                yield Credential(name, _of(user))
                if end == "expired":
                    ConsoleSession.objects.filter(user=user).update(expires_at=now())
                elif end == "of a former password":
                    user.set_password("another")
                    user.save()
                else:
                    User.objects.filter(pk=user.pk).update(is_active=False)

    def _keys(self) -> Iterator[Credential]:
        own = self.world.tenant
        yield _key("owner key", own)
        yield _key("naming its own tenant", own, own)
        yield replace(_key("naming another", own, self.world.app_tenant), names_foreign_tenant=True)
        yield replace(_key("limited", own, numbers=["100"]), is_limited=True, scopes=NUMBER_SCOPES)
        for scope in KeyScope:
            for environment in ENVIRONMENTS:
                possible = ALL_SCOPES - (LIVE_SCOPES if environment == "test" else set())
                for kind, scopes in (("with", possible & {scope}), ("without", possible - {scope})):
                    if scopes:
                        key = _key(
                            f"{environment} {kind} {scope}", own, environment=environment, scopes=scopes
                        )
                        yield replace(key, about=scope)
        # Test keys from the time before scopes existed have all scopes.
        former = api_keys.create(name="former", environment="test", tenant=own)
        _changed(former.row, scopes=sorted(ALL_SCOPES))
        yield Credential("test with all", Api(former.key), "tenant_key", own, environment="test")
        yield _key("another tenant", Tenant.objects.create(name="Other", status="active"))
        sandbox = Tenant.objects.create(name="Sandbox", status="active", sandbox=True)
        for environment in ENVIRONMENTS:
            yield _key(f"sandbox {environment}", sandbox, environment=environment)
        for status in ("pending_approval", "rejected", "suspended"):
            for environment in ENVIRONMENTS:
                there = Tenant.objects.create(name=status, status=status, sandbox=environment == "test")
                yield _key(f"{environment} of a tenant, {status}", there, environment=environment)
                without = f"{environment} for messages, of a tenant, {status}"
                yield _key(without, there, environment=environment, scopes={KeyScope.MESSAGES})

    def _platform_keys(self) -> Iterator[Credential]:
        app, own = self.world.app, self.world.app_tenant
        yield replace(_platform_key("platform", app, None), names_no_tenant=True)
        yield replace(
            _platform_key("platform naming a foreign", app, self.world.tenant), names_foreign_tenant=True
        )
        yield _platform_key("platform for its own", app, own)
        yield _platform_key("platform for its sandbox", app, _tenant_of(app, sandbox=True), "test")
        # A platform's test key acts only on sandbox tenants.
        for_live = _platform_key("platform's test key for its own", app, own, "test")
        yield replace(for_live, names_foreign_tenant=True)
        for status in ("pending_approval", "rejected", "suspended"):
            yield _platform_key(f"platform for its tenant, {status}", app, _tenant_of(app, status=status))
        another = platform_apps.create_app(name="Another platform")
        yield replace(_platform_key("another platform", another, None), names_no_tenant=True)

    def _members(self) -> Iterator[Credential]:
        for role in Role:
            yield _member(str(role), self.world.tenant, role)
        yield replace(
            _member("member naming another", self.world.tenant, Role.OWNER, self.world.app_tenant),
            names_foreign_tenant=True,
        )
        for status in ("pending_approval", "rejected", "suspended"):
            there = Tenant.objects.create(name=status, status=status)
            for role in (Role.OWNER, Role.READ_ONLY):
                yield _member(f"{role} of a tenant, {status}", there, role)

    def _connected_apps(self) -> Iterator[Credential]:
        for name, role, only_reads in (
            ("connected app", Role.DEVELOPER, False),
            ("connected app that only reads", Role.DEVELOPER, True),
        ):
            token = tokens_of(
                _user(name, self.world.tenant, role), environment="live", only_reads=only_reads
            ).access
            shown = Role.READ_ONLY if only_reads else role
            yield Credential(
                name,
                Api(token),
                "connected_app",
                self.world.tenant,
                scopes=frozenset(connections.SCOPES),
                role=shown,
            )
        token = tokens_of(_user("gone", self.world.tenant, Role.DEVELOPER)).access
        AppConnection.objects.filter(user__email__startswith="gone").update(access_expires_at=now())
        yield Credential("expired connected app", Api(token))


def _changed(key: ApiKey, **fields: object) -> None:
    ApiKey.objects.filter(pk=key.pk).update(**fields)
    key_cache.write_key(ApiKey.objects.get(pk=key.pk))


def _headers(chosen: Tenant | None) -> dict[str, str]:
    return {TENANT_HEADER: str(chosen.id)} if chosen is not None else {}


def _key(
    name: str,
    tenant: Tenant,
    chosen: Tenant | None = None,
    *,
    environment: Environment = "live",
    scopes: Collection[KeyScope] | None = None,
    numbers: list[str] | None = None,
) -> Credential:
    new = api_keys.create(
        name="server", environment=environment, tenant=tenant, scopes=scopes, phone_number_ids=numbers
    )
    return Credential(
        name,
        Api(new.key, **_headers(chosen)),
        "tenant_key",
        tenant,
        environment=environment,
        scopes=frozenset(KeyScope(scope) for scope in new.row.scopes),
    )


def _platform_key(
    name: str, app: PlatformApp, tenant: Tenant | None, environment: Environment = "live"
) -> Credential:
    key = platform_apps.create_app_key(app_id=app.id, name=name, environment=environment).key
    return Credential(name, Api(key, **_headers(tenant)), "app_key", tenant, app, environment)


def _tenant_of(app: PlatformApp, *, status: str = "active", sandbox: bool = False) -> Tenant:
    return Tenant.objects.create(name=f"{status} of {app.name}", app=app, status=status, sandbox=sandbox)


def _user(name: str, tenant: Tenant | None, role: Role = Role.OWNER) -> User:
    return User.objects.create_user(
        f"{re.sub(r'[^a-z_]+', '-', name)}@people.example", "pw", tenant=tenant, role=role
    )


def _superuser(name: str) -> User:
    return User.objects.create_superuser(f"{name}@service.example", "pw")


def _of(user: User, chosen: Tenant | None = None) -> Api:
    return Api(bearer_tokens.open_session(user).token, **_headers(chosen))


def _member(name: str, tenant: Tenant, role: Role, chosen: Tenant | None = None) -> Credential:
    return Credential(name, _of(_user(name, tenant, role), chosen), "console_user", tenant, role=role)
