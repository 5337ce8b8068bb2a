"""Flows by their own ids: whose a flow is, only the upstream knows.

A token may open the accounts of several businesses, so that it reads a flow proves nothing: the account that the flow
names must be the tenant's.
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from gateway.upstream.blocking_pool import blocking_pool
from gateway.upstream.calls import GraphAnswer, prepare
from gateway.upstream.client import request
from gateway.upstream.file_bodies import MultipartFile
from messaging.form_files import Upload
from phone_numbers.models import BusinessAccount

MOST_ASKED = 3
"""Accounts whose tokens are tried, the newest: each is a call of the upstream."""


def owner_of(flow_id: str, *, tenant_id: UUID, environment: str) -> BusinessAccount | None:
    """The tenant's account that has a flow; None for every other id. Raises UpstreamUnreachable."""
    rows = BusinessAccount.objects.for_tenant(tenant_id).filter(environment=environment)
    accounts = {account.waba_id: account for account in rows.order_by("-id")}
    tried: set[str] = set()
    for account in accounts.values():
        if account.access_token in tried or len(tried) == MOST_ASKED:
            continue
        tried.add(account.access_token)
        answer = request(
            environment=environment,
            method="GET",
            path=flow_id,
            token=account.access_token,
            params={"fields": "whatsapp_business_account"},
        )
        named = answer.json().get("whatsapp_business_account") if answer.ok else None
        if isinstance(named, dict):
            return accounts.get(str(named.get("id")))
    return None


def send_asset(account: BusinessAccount, path: str, form: Mapping[str, str], file: Upload) -> GraphAnswer:
    """`POST /{FLOW}/assets`: a file of a flow with the form around it. Raises UpstreamUnreachable."""
    body = MultipartFile(
        dict(form), file.content, length=file.length, name=file.name, mime_type=file.mime_type
    )
    call = prepare(environment=account.environment, method="POST", path=path, token=account.access_token)
    headers = {**call.headers, "Content-Type": body.content_type}
    return blocking_pool().send(replace(call, headers=headers, body=body))
