"""Settings of every process, read from the environment. `.env.example` documents each variable with its default.

A variable of the process's environment comes first, then a `.env` file beside `manage.py`, then the default. The
defaults suit the embedded servers, so `make run` needs no variables. `NAME_FILE` names a file with the value of `NAME`.
In production the settings do not load while a secret is missing or published (`gateway/environment.py`).
`gateway/checks.py` finds other bad values.
"""

from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from gateway import embedded_addresses
from gateway.environment import (
    DEVELOPMENT_ENCRYPTION_KEY,
    DEVELOPMENT_SECRET_KEY,
    DEVELOPMENT_VERIFY_TOKEN,
    SIMULATOR_APP_ID,
    SIMULATOR_APP_SECRET,
    SIMULATOR_RAZORPAY_KEY_ID,
    SIMULATOR_RAZORPAY_SECRET,
    Env,
    require_production_values,
)
from gateway.guides import documentation
from gateway.valkey import connection

BASE_DIR = Path(__file__).resolve().parent.parent
env = Env()
Env.read_env(BASE_DIR / ".env", overwrite=False)

# --- The kind of run ----------------------------------------------------------------------------------
ENVIRONMENT: str = env.str("ENVIRONMENT", "development")
"""`development` or `production`. Production has safe defaults and turns unsafe values into errors."""
if ENVIRONMENT not in {"development", "production"}:
    raise ImproperlyConfigured("ENVIRONMENT must be development or production.")
PRODUCTION: bool = ENVIRONMENT == "production"
if PRODUCTION:
    require_production_values(env)
DEBUG: bool = env.bool("DEBUG", False)
SERVICE_NAME: str = env.str("SERVICE_NAME", "whabuzz")
SERVICE_SHA: str = env.str("SERVICE_SHA", "unknown")
API_VERSION = "2026-10-16"

# --- Addresses ----------------------------------------------------------------------------------------
DATA_DIR: Path = (BASE_DIR / env.str("DATA_DIR", ".local")).resolve()
PORT: int = env.int("PORT", 8000)
SIMULATOR_PORT: int = env.int("SIMULATOR_PORT", 8100)
BASE_URL: str = env.str("BASE_URL", f"http://127.0.0.1:{PORT}").rstrip("/")
APP_URL: str = env.str("APP_URL", BASE_URL).rstrip("/")
ALLOWED_HOSTS: list[str] = env.list(
    "ALLOWED_HOSTS",
    default=[host for url in (BASE_URL, APP_URL) if (host := urlsplit(url).hostname)]
    + ([] if PRODUCTION else ["localhost", "127.0.0.1", "[::1]", "testserver"]),
)
CSRF_TRUSTED_ORIGINS: list[str] = [APP_URL] if APP_URL.startswith("https://") else []

# --- Secrets ------------------------------------------------------------------------------------------
SECRET_KEY: str = env.str("SECRET_KEY", DEVELOPMENT_SECRET_KEY)
SECRET_KEY_FALLBACKS: list[str] = env.list("SECRET_KEY_FALLBACKS", default=[])
ENCRYPTION_KEYS: list[str] = env.list("ENCRYPTION_KEYS", default=[DEVELOPMENT_ENCRYPTION_KEY])
"""Fernet keys for tokens and PINs: the first encrypts, all decrypt."""

# --- Meta, and the simulator that serves test keys and sandbox tenants --------------------------------
META_APP_ID: str = env.str("META_APP_ID", SIMULATOR_APP_ID)
META_APP_SECRET: str = env.str("META_APP_SECRET", SIMULATOR_APP_SECRET)
META_APP_SECRET_FALLBACKS: list[str] = env.list("META_APP_SECRET_FALLBACKS", default=[])
"""Former app secrets. Notifications signed with a former secret are accepted. The service signs nothing with a
former secret.
"""
META_WEBHOOK_VERIFY_TOKEN: str = env.str("META_WEBHOOK_VERIFY_TOKEN", DEVELOPMENT_VERIFY_TOKEN)
META_GRAPH_URL: str = env.str("META_GRAPH_URL", "https://graph.facebook.com").rstrip("/")
META_GRAPH_VERSION: str = env.str("META_GRAPH_VERSION", "v25.0")
SANDBOX_GRAPH_URL: str = env.str(
    "SANDBOX_GRAPH_URL", "" if PRODUCTION else f"http://127.0.0.1:{SIMULATOR_PORT}"
).rstrip("/")
SANDBOX_APP_ID: str = env.str("SANDBOX_APP_ID", SIMULATOR_APP_ID)
SANDBOX_APP_SECRET: str = env.str("SANDBOX_APP_SECRET", "" if PRODUCTION else SIMULATOR_APP_SECRET)
SANDBOX_CONTROL_TOKEN: str = env.str("SANDBOX_CONTROL_TOKEN", "")
"""Token of the simulator's own routes, `Authorization: Bearer …`. Equals the simulator's SIMULATOR_CONTROL_TOKEN."""
SANDBOX_SIGNUP_SDK_URL: str = env.str("SANDBOX_SIGNUP_SDK_URL", f"{SANDBOX_GRAPH_URL}/sdk.js")
"""The simulator's sign-up SDK, at the address that the tenant's browser can reach."""
META_CONFIG_ID: str = env.str("META_CONFIG_ID", "")
"""The login configuration of the embedded sign-up (Facebook Login for Business)."""
UPSTREAM_TIMEOUT_MS = 15_000
"""Longest duration of a call to the Graph API, in milliseconds (specification 8)."""

# --- Deliveries to tenants' endpoints -------------------------------------------------------------------
WEBHOOK_ALLOW_HTTP: bool = env.bool("WEBHOOK_ALLOW_HTTP", not PRODUCTION)
WEBHOOK_ALLOW_PRIVATE_NETWORKS: bool = env.bool("WEBHOOK_ALLOW_PRIVATE_NETWORKS", not PRODUCTION)
WEBHOOK_PROXY_URL: str = env.str("WEBHOOK_PROXY_URL", "")
"""The HTTP proxy, `http://[user:password@]host:port`, for requests to tenants' endpoints (CONNECT)."""
WEBHOOK_RETRY_SCHEDULE: list[float] = [
    float(step)
    for step in env.list(
        "WEBHOOK_RETRY_SCHEDULE",
        default=["5", "30", "120", "600", "1800", "7200", "18000", "36000", "50400", "72000", "86400"],
    )
]
"""Seconds between an attempt and the next. After the last step a delivery is dead."""
DELIVERY_CONCURRENCY: int = env.int("DELIVERY_CONCURRENCY", 256)
"""Requests in flight in one worker process. Requests that take longer than a second are counted separately."""
DELIVERY_LEASE_SECONDS = 60
"""Lease of a claimed delivery, in seconds. A dead worker's leases end earlier (`database/live_workers.py`)."""

# --- Batches --------------------------------------------------------------------------------------------
BATCH_LEASE_SECONDS = 15.0
"""Lease of a running batch, in seconds. A dead worker's leases end earlier (`database/live_workers.py`)."""

# --- Retention ------------------------------------------------------------------------------------------
EVENT_METADATA_DAYS: int = env.int("EVENT_METADATA_DAYS", 730)
REQUEST_LOG_DAYS: int = env.int("REQUEST_LOG_DAYS", 7)
"""Days for which the request log is stored. 0 turns it off."""

# --- The service's own API ------------------------------------------------------------------------------
API_RATE_PER_SECOND: float = env.float("API_RATE_PER_SECOND", 200.0)
API_RATE_BURST: int = env.int("API_RATE_BURST", 400)

# --- Tenants --------------------------------------------------------------------------------------------
TRIAL_DAYS: int = env.int("TRIAL_DAYS", 14)
EMAIL_MODE: str = env.str("EMAIL_MODE", "log")
"""`smtp`, `console`, or `log` to store mails in the database for `/v1/admin/mail/last`."""
_MAIL_SERVER = env.email_url_config(env.str("EMAIL_URL", "smtp://localhost:25"))
EMAIL_HOST: str = _MAIL_SERVER["EMAIL_HOST"]
EMAIL_PORT: int = _MAIL_SERVER["EMAIL_PORT"] or 25
EMAIL_HOST_USER: str = _MAIL_SERVER["EMAIL_HOST_USER"] or ""
EMAIL_HOST_PASSWORD: str = _MAIL_SERVER["EMAIL_HOST_PASSWORD"] or ""
EMAIL_USE_TLS: bool = _MAIL_SERVER.get("EMAIL_USE_TLS", False)
EMAIL_USE_SSL: bool = _MAIL_SERVER.get("EMAIL_USE_SSL", False)
EMAIL_TIMEOUT = 15
TEXTS_DIR: str = env.str("TEXTS_DIR", "")
"""Folder with the operator's own `terms.md` and `privacy.md`. For a missing file the service has a default text."""
SUPPORT_EMAIL: str = env.str("SUPPORT_EMAIL", "support@localhost")
"""Reply-To of mails, and the contact on pages and in mails."""
DEFAULT_FROM_EMAIL: str = env.str("DEFAULT_FROM_EMAIL", f"{SERVICE_NAME} <{SUPPORT_EMAIL}>")
WEBSITE_CHECK: bool = env.bool("WEBSITE_CHECK", False)
"""Whether to fetch a new tenant's website once, for the flags that reviewers see."""
STAFF_SECOND_FACTOR: bool = env.bool("STAFF_SECOND_FACTOR", PRODUCTION)
"""Whether staff need a second factor for the admin and for console tokens."""

# --- Billing ----------------------------------------------------------------------------------------------
BILLING_INSTALLED: bool = env.bool("BILLING_INSTALLED", True)
"""Whether the deployment has billing: its tables, routes, pages and tasks."""
BILLING_ENABLED: bool = env.bool("BILLING_ENABLED", False) and BILLING_INSTALLED
BILLING_FIRST_PERIOD: str = env.str("BILLING_FIRST_PERIOD", "")
"""The first month that is billed, such as `2026-12`. Earlier months are never billed. If it is empty, only the
previous month is billed.
"""
BILLING_SAC: str = env.str("BILLING_SAC", "998315")
"""The service accounting code on invoices. An accountant has to choose it."""
BILLING_SERVICE: str = env.str("BILLING_SERVICE", "WhatsApp messaging gateway")
"""Description of the service on invoices."""
BILLING_LUT_NUMBERS: dict[str, str] = env.dict("BILLING_LUT_NUMBERS", default={})
"""The letter of undertaking of each financial year. In a year without a letter, special zones and exports are
charged IGST.
"""
BILLING_INVOICE_PREFIX: str = env.str("BILLING_INVOICE_PREFIX", "WG")
BILLING_CREDIT_NOTE_PREFIX: str = env.str("BILLING_CREDIT_NOTE_PREFIX", "WGCN")
BILLING_SELLER_NAME: str = env.str("BILLING_SELLER_NAME", "Example Messaging Private Limited")
BILLING_SELLER_ADDRESS: str = env.str("BILLING_SELLER_ADDRESS", "1 Example Road, Mumbai 400001")
BILLING_SELLER_GSTIN: str = env.str("BILLING_SELLER_GSTIN", "27AAPFU0939F1ZV")
"""The GSTIN of the seller, which also gives the seller's State."""
BILLING_SELLER_CITY: str = env.str("BILLING_SELLER_CITY", "Mumbai")
BILLING_SELLER_PIN: str = env.str("BILLING_SELLER_PIN", "400001")
BILLING_LOGO_FILE: str = env.str("BILLING_LOGO_FILE", "")
"""Path of the seller's logo for invoices, an SVG. Empty for no logo."""
BILLING_SELLER_CONTACT: str = env.str("BILLING_SELLER_CONTACT", "")
"""Contact for questions about an invoice: a mail address or a phone number."""
BILLING_BANK_ACCOUNT: str = env.str("BILLING_BANK_ACCOUNT", "")
"""The bank account for transfers, as printed on invoices: name of the bank, number, IFSC."""
BILLING_UPI_ID: str = env.str("BILLING_UPI_ID", "")
"""The UPI address in the QR codes on invoices and pay pages. Empty for no QR codes."""
BILLING_EINVOICES: bool = env.bool("BILLING_EINVOICES", False)
"""Whether invoices must be registered at the portal (IRN). Invoices to registered buyers are then mailed only once
they are registered.
"""
BILLING_SECOND_PERSON_RUPEES: int = env.int("BILLING_SECOND_PERSON_RUPEES", 100_000)
"""The amount that one staff member may move for a tenant in a day. A larger amount needs a second member's
approval. 0 for no limit.
"""
PAYMENT_PROVIDER: str = env.str("PAYMENT_PROVIDER", "razorpay")
"""Provider of new mandates and payment links. Existing mandates and links stay with their provider."""
RAZORPAY_BASE_URL: str = env.str(
    "RAZORPAY_BASE_URL",
    "https://api.razorpay.com/v1" if PRODUCTION else f"http://127.0.0.1:{SIMULATOR_PORT}/v1",
).rstrip("/")
RAZORPAY_KEY_ID: str = env.str("RAZORPAY_KEY_ID", SIMULATOR_RAZORPAY_KEY_ID)
RAZORPAY_KEY_SECRET: str = env.str("RAZORPAY_KEY_SECRET", SIMULATOR_RAZORPAY_SECRET)
RAZORPAY_WEBHOOK_SECRETS: list[str] = env.list(
    "RAZORPAY_WEBHOOK_SECRETS", default=[] if PRODUCTION else [SIMULATOR_RAZORPAY_SECRET]
)
"""The webhook's secret and, during a change, its former secret. Without a secret, no notice is accepted."""

# --- Django ---------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "tenants.apps.StaffAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "csp",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "gateway",
    "gateway.request_log.apps.RequestLogConfig",
    "tenants",
    "webhooks",
    "phone_numbers",
    "messaging",
    *(["billing"] if BILLING_INSTALLED else []),
    "console",
]
MIDDLEWARE = [
    "gateway.api.middleware.service_response",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Comes before the classes below, so that it also covers the pages with which they reject requests.
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "gateway.api.middleware.ContentSecurityPolicy",
    "gateway.api.middleware.Sessions",
    "gateway.api.middleware.Common",
    "django.middleware.csrf.CsrfViewMiddleware",
    "gateway.api.middleware.Authentication",
    "gateway.api.middleware.Messages",
    "allauth.account.middleware.AccountMiddleware",
]
ROOT_URLCONF = "gateway.urls"
WSGI_APPLICATION = "gateway.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.navigation.console_context",
            ],
        },
    },
]

DATABASES = {"default": env.db_url_config(env.str("DATABASE_URL", embedded_addresses.database_url(DATA_DIR)))}
_LOST_HOST = {
    "connect_timeout": 2,
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""Time limits, in seconds, after which a connection to a lost database host ends. Its call is then answered 503.

A host without power or network sends nothing. Without these limits a statement would wait for the kernel: a quarter of
an hour if sent bytes are unacknowledged, otherwise forever.
"""
DATABASES["default"]["OPTIONS"] = {**_LOST_HOST, **DATABASES["default"].get("OPTIONS", {})}
DATABASES["default"]["CONN_MAX_AGE"] = 600  # a connection for each task would cost more than the task
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASE_PREPARED_STATEMENTS: bool = env.bool("DATABASE_PREPARED_STATEMENTS", True)
"""Whether to prepare the statements of publishing and of the dispatchers, and to read long lists with server-side
cursors.

Turn it off for a pooler in transaction mode. Such a pooler supports neither, because each transaction may use another
connection.
"""
DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = not DATABASE_PREPARED_STATEMENTS
DATABASE_IS_DISTRIBUTED: bool = env.bool("DATABASE_IS_DISTRIBUTED", False)
"""Whether `DATABASE_URL` names the coordinator of a Citus cluster (`gateway/database/distribution.py`)."""
DATABASE_REPLICA_URL: str = env.str("DATABASE_REPLICA_URL", "")
"""A read replica for lists and analytics, whose rows may be a few seconds old. Empty to use the primary."""
if DATABASE_REPLICA_URL:
    _REPLICA = env.db_url_config(DATABASE_REPLICA_URL)
    DATABASES["replica"] = {
        **DATABASES["default"],
        **_REPLICA,
        "OPTIONS": {**_LOST_HOST, **_REPLICA.get("OPTIONS", {})},
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL: str = env.str("REDIS_URL", embedded_addresses.valkey_url(DATA_DIR))
"""The address of one server, or `sentinel://[:password@]host:port,host:port/0?master=NAME`
(`gateway/valkey/connection.py`).
"""
CACHES = {
    "default": {
        "BACKEND": "gateway.valkey.cache.ValkeyCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "cache",
        "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 1.0},
    }
}

AUTH_USER_MODEL = "tenants.User"
PASSWORD_HASHERS = [
    "tenants.credentials.log_in.Argon2idHasher",
    # For accounts whose last log-in was before the change to Argon2id.
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator",
        # The sign-up form sets `company`, which is not a field of the user.
        "OPTIONS": {"user_attributes": ("company", "first_name", "last_name", "email")},
    },
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_RESET_TIMEOUT = 86_400
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "console"
ACCOUNT_ADAPTER = "tenants.credentials.log_in.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "console.log_in_and_passkeys.LogInForm",
    "change_password": "console.log_in_and_passkeys.ChangePassword",
    "reset_password_from_key": "console.log_in_and_passkeys.NewPassword",
}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = (
    "none"  # a user exists only once the address is confirmed (tenants/signup/sign_ups.py)
)
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_SESSION_REMEMBER = False
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_DEFAULT_HTTP_PROTOCOL = urlsplit(APP_URL).scheme
ACCOUNT_RATE_LIMITS = {
    "login": "60/m/ip",
    "login_failed": "20/15m/ip,5/15m/key",
    "signup": "20/h/ip,5/h/key",
    "confirm_sign_up": "20/h/ip",
    "reset_password": "20/h/ip,5/h/key",
    "reset_password_from_key": "20/h/ip",
    # A program that waits for its log-in redeems its code 20 times a minute, so thirty colleagues behind one office's
    # address can log in at once.
    "device_login": "30/10m/ip",
    "device_redeem": "600/m/ip,30/m/key",
    # An assistant's servers register apps and redeem codes for all of its users, from few addresses.
    "app_registration": "100/h/ip",
    "app_token": "600/m/ip",
    "call_while_waiting": "60/h/key",
}
MFA_ADAPTER = "tenants.credentials.log_in.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_FORMS = {
    "add_webauthn": "console.log_in_and_passkeys.AddPasskeyForm",
    "authenticate": "console.log_in_and_passkeys.CodeForm",
}
MFA_TOTP_ISSUER = SERVICE_NAME
MFA_TOTP_TOLERANCE = 1
MFA_ALLOW_UNVERIFIED_EMAIL = True
ALLAUTH_TRUSTED_PROXY_COUNT: int = env.int("TRUSTED_PROXY_COUNT", 0)
"""The number of trusted proxies that append to X-Forwarded-For. 0 if callers connect directly."""

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    },
}

LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = "gateway.formats"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = not PRODUCTION
WHITENOISE_ROOT: Path | None = documentation.PUBLIC if documentation.PUBLIC.is_dir() else None
"""The built documentation. None before `make guides`."""
WHITENOISE_INDEX_FILE = True
WHITENOISE_ADD_HEADERS_FUNCTION = documentation.add_headers

DATA_UPLOAD_MAX_MEMORY_SIZE = 32 * 1024 * 1024
"""A second limit behind the limits that views declare (`gateway/api/limits.py`). It equals the largest of those, that
of a batch. It does not apply to files.
"""

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = APP_URL.startswith("https://")
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 12 * 3600
SECURE_HSTS_SECONDS: int = env.int("SECURE_HSTS_SECONDS", 31_536_000 if PRODUCTION else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = PRODUCTION
SECURE_SSL_REDIRECT: bool = env.bool("SECURE_SSL_REDIRECT", PRODUCTION)
SECURE_REDIRECT_EXEMPT = [r"^metrics$"]
"""Paths that programs in the network call by IP address."""
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if env.bool("TRUST_PROXY_HEADERS", False) else None
)
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# --- API ------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["tenants.credentials.bearer_tokens.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["gateway.api.authentication.TenantCaller"],
    "DEFAULT_THROTTLE_CLASSES": ["gateway.api.limits.TenantRateThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["gateway.api.json.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["gateway.api.json.JSONParser"],
    "DEFAULT_PAGINATION_CLASS": "gateway.api.pagination.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "gateway.api.openapi.schema.ServiceSchema",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "gateway.api.json.AlwaysJSON",
    "EXCEPTION_HANDLER": "gateway.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "DATETIME_FORMAT": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Messaging gateway",
    "VERSION": API_VERSION,
    "DESCRIPTION": (
        "Send WhatsApp messages with one API key and get every event as a signed webhook.\n\n"
        "Bodies for messages and templates, and success answers of WhatsApp, are WhatsApp's own. Every "
        "answer carries `Server-Timing`, `X-Service-Processing-Ms`, `X-Service-Request-Id` and "
        "`X-Service-Version`; errors add `X-Service-Error-Source`. Pin the version with "
        f"`X-Service-Version: {API_VERSION}`."
    ),
    "CONTACT": {"name": "Support"},
    "LICENSE": {"name": "Proprietary", "identifier": "LicenseRef-Proprietary"},
    "SERVERS": [{"url": "/", "description": "The host that serves this document."}],
    # drf_spectacular.hooks.postprocess_schema_enums is left out: an enumeration stays where it is used, so no generator
    # makes two constants with one name. gateway.api.openapi.names names some enumerations.
    "POSTPROCESSING_HOOKS": [
        "gateway.api.openapi.schema.any_json",
        "gateway.api.openapi.schema.closed_bodies",
        "gateway.upstream.contract.bodies.typed_bodies",
        "webhooks.events.contract.typed_events",
        "gateway.api.openapi.schema.shared_parts",
        "gateway.api.openapi.names.good_names",
        "gateway.api.openapi.words.described",
        "gateway.api.openapi.examples.examples",
    ],
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": r"/v1",
    "PATH_CONVERTER_OVERRIDES": {"id": {"type": "string", "format": "uuid"}},
}

# --- Celery ---------------------------------------------------------------------------------------------
CELERY_BROKER_URL, _BROKER_OPTIONS = connection.celery_broker(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # workers wait for Valkey without limit
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_DB_REUSE_MAX = (
    1_000_000_000  # Celery closes no connection: `gateway/celery.py` does, like Django between requests
)
CELERY_TASK_ROUTES = {
    "webhooks.tasks.deliver_due": {"queue": "deliveries"},
    "messaging.tasks.run_batches": {"queue": "batches"},
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_connect_timeout": 2,
    "socket_timeout": 5,
    "retry_on_timeout": True,
    # How often each worker searches for tasks whose worker died more than an hour ago. Celery's default is ten seconds.
    "unacked_restore_interval": 60,
    **_BROKER_OPTIONS,
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# No interval exceeds an hour. On a replaced host, beat does not know when each task last ran, and would wait a whole
# interval at each roll-out.
_PERIODIC_TASKS = {
    # Fallbacks. Dispatchers and runners restart and poll by themselves (`gateway/role_loop.py`), and each release of
    # a replay queues the next one.
    "deliver-due": ("webhooks.tasks.deliver_due", 30.0),
    "run-batches": ("messaging.tasks.run_batches", 30.0),
    "release-replays": ("webhooks.tasks.release_replays", 30.0),
    "hurry-archives": ("webhooks.tasks.hurry_archives", 30.0),
    "mirror-reconcile": ("tenants.tasks.reconcile_key_mirror", 60.0),
    "keys-last-used": ("tenants.tasks.write_last_used", 60.0),
    "mail": ("tenants.tasks.send_waiting_mail", 60.0),
    "exports": ("console.tasks.write_exports", 60.0),
    "unconfirmed-sign-ups": ("tenants.tasks.prune_unconfirmed_sign_ups", 3600.0),
    "connected-apps": ("tenants.tasks.prune_connected_apps", 3600.0),
    "device-logins": ("tenants.tasks.prune_device_logins", 3600.0),
    "invitations": ("tenants.tasks.prune_invitations", 3600.0),
    "sessions": ("tenants.tasks.prune_sessions", 3600.0),
    "console-tokens": ("tenants.tasks.prune_console_tokens", 3600.0),
    "number-sync": ("phone_numbers.tasks.start_due_syncs", 30.0),
    "template-sync": ("messaging.tasks.start_due_template_syncs", 15.0),
    "app-data": ("phone_numbers.tasks.request_app_data", 60.0),
    "token-ends": ("phone_numbers.tasks.warn_of_token_ends", 3600.0),
    "missing-sandboxes": ("phone_numbers.tasks.make_missing_sandboxes", 300.0),
    "redeemed-codes": ("phone_numbers.tasks.prune_redeemed_codes", 3600.0),
    "connect-sessions": ("phone_numbers.tasks.prune_connect_sessions", 3600.0),
    "partitions": ("gateway.tasks.maintain_partitions", 3600.0),
    "figures": ("webhooks.tasks.roll_up_figures", 20.0),
    "old-figures": ("webhooks.tasks.prune_figures", 3600.0),
    "bodies": ("webhooks.tasks.move_bodies", 60.0),
    "endpoint-notices": ("webhooks.tasks.notify_endpoint_changes", 30.0),
    "answers": ("webhooks.tasks.prune_answers", 3600.0),
    "event-keys": ("webhooks.tasks.prune_event_keys", 3600.0),
    "erasures": ("messaging.tasks.erase_customers", 60.0),
    "kept-notifications": ("messaging.tasks.prune_kept_notifications", 3600.0),
    "idempotency-records": ("messaging.tasks.prune_idempotency_records", 3600.0),
    "known-media": ("messaging.tasks.prune_media", 3600.0),
    "batches": ("messaging.tasks.prune_batches", 3600.0),
    "scheduled-messages": ("messaging.tasks.prune_scheduled_messages", 3600.0),
    "message-references": ("messaging.tasks.prune_message_references", 3600.0),
    "read-marks": ("messaging.tasks.prune_read_marks", 3600.0),
    "batch-files": ("messaging.tasks.prune_batch_files", 3600.0),
}
if BILLING_INSTALLED:
    _PERIODIC_TASKS["billing"] = ("billing.tasks.run_billing", 600.0)
    _PERIODIC_TASKS["billing-notices"] = ("billing.tasks.apply_notices", 600.0)
    _PERIODIC_TASKS["old-billing-notices"] = ("billing.tasks.prune_notices", 3600.0)
# A task's message is dropped when the next one is due. Otherwise the messages of hours without a worker would delay all
# other tasks.
CELERY_BEAT_SCHEDULE = {
    name: {"task": task, "schedule": seconds, "options": {"expires": seconds}}
    for name, (task, seconds) in _PERIODIC_TASKS.items()
}

# --- Staff admin ------------------------------------------------------------------------------------------
UNFOLD = {
    "SITE_TITLE": f"{SERVICE_NAME.capitalize()} staff",
    "SITE_HEADER": f"{SERVICE_NAME.capitalize()} staff",
    "SITE_ICON": "tenants.staff.site.favicon",
    "SITE_URL": "/console",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "tenants.staff.site.favicon"}],
    "COLORS": {
        "primary": {
            "50": "#effaf8",
            "100": "#d3f1ec",
            "200": "#a8e3da",
            "300": "#72cdc1",
            "400": "#3fb0a3",
            "500": "#1f9487",
            "600": "#00786d",
            "700": "#0a615a",
            "800": "#0d4d48",
            "900": "#10403c",
            "950": "#042523",
        },
    },
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "ENVIRONMENT": "tenants.staff.site.environment_badge",
    "DASHBOARD_CALLBACK": "tenants.staff.dashboard.dashboard",
    "STYLES": ["tenants.staff.site.stylesheet"],
    "SCRIPTS": ["tenants.staff.site.script"],
    "SIDEBAR": {"show_search": True, "navigation": "tenants.staff.site.navigation"},
}

# --- Logs and metrics -----------------------------------------------------------------------------------
LOG_LEVEL: str = env.str("LOG_LEVEL", "INFO").upper()
METRICS_TOKEN: str = env.str("METRICS_TOKEN", "")
"""Token of the scraper of `/metrics`, `Authorization: Bearer …`. Empty to disable `/metrics`."""
SENTRY_DSN: str = env.str("SENTRY_DSN", "")
"""Sentry's address for error reports. Empty to send none."""
OTEL_EXPORTER_OTLP_ENDPOINT: str = env.str("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
"""The collector to which traces are exported (OTLP over HTTP). Empty for no traces. See `monitoring/tracing.py`.

OpenTelemetry's SDK itself reads the other `OTEL_*` variables, such as that of the sampler.
"""
OTEL_EXPORTER_OTLP_HEADERS: str = env.str("OTEL_EXPORTER_OTLP_HEADERS", "")
"""Headers for the collector, as `name=value,name=value`."""
LOGGING_CONFIG = "gateway.monitoring.logs.configure"
LOGGING = {"level": LOG_LEVEL}
