"""Token health. A token is checked at Meta daily and after Meta rejected it. Tenants are notified before it ends and
when it fails.

`token.expiring` is published 7 days and 1 day before a token ends. `token.invalid` is published once for each failure
(`connection.token_failed`). Callers are the sync, beat, and every flow whose call Meta rejected with 190 or a similar
code. The section `tokens` of `/v1/admin/health` counts tokens that expire soon and tokens that fail.
"""

from datetime import timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q
from rest_framework import serializers

from gateway.api.errors import MetaUnreachable
from gateway.clock import now
from gateway.database.transactions import concerns_all
from gateway.monitoring import admin_health
from gateway.upstream import oauth
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable, Verdict, classify, platform
from gateway.upstream.numbers import Graph
from phone_numbers.connection import state
from phone_numbers.connection.mails import TOKEN_WARNING_DAYS
from phone_numbers.models import BusinessAccount

# --- Graph API calls with an account's token. A rejection by Meta becomes an exception, and the views return Meta's
# response verbatim.
#
# Used by the onboarding, the operations on numbers, the templates and the syncs.


class Refused(Exception):
    """Raised when Meta answers with an error. The response to our caller is `passed_through(answer, verdict)`."""

    def __init__(self, answer: GraphAnswer, verdict: Verdict) -> None:
        super().__init__(f"upstream error {verdict.code}")
        self.answer, self.verdict = answer, verdict


FAILURES = (Refused, MetaUnreachable, UpstreamUnreachable)
"""The errors of a call: Meta rejected it, gave an unusable answer, or gave no answer."""


def accepted(answer: GraphAnswer) -> GraphAnswer:
    """Return a successful answer. Raises Refused for an error, MetaUnreachable for an unusable answer."""
    verdict = classify(answer)
    if not verdict.ok:
        raise Refused(answer, verdict)
    return answer


def graph_of(account: BusinessAccount) -> Graph:
    """The Graph API with the account's stored token."""
    return Graph(account.environment, account.access_token)


log = structlog.get_logger(__name__)

CHECK_INTERVAL = timedelta(hours=23)
"""How often a token is checked. It is a little less than a day, so that a sync every six hours checks
the token daily.
"""
QUESTION_INTERVAL = timedelta(seconds=3)
"""The shortest time between two checks of a token, however many calls report that Meta rejected it."""


def check_is_due(account: BusinessAccount) -> bool:
    """Whether the sync must check the token: once a day, once after the token's end, and at every sync while the token
    is invalid.
    """
    checked_at, end, moment = account.token_checked_at, state.token_end(account), now()
    return (
        account.token_invalid_at is not None
        or checked_at is None
        or moment - checked_at > CHECK_INTERVAL
        or (end is not None and checked_at < end <= moment)
    )


def question(*, waba_id: str, token: str) -> None:
    """Check a token after Meta rejected a call with a token error. The token is marked invalid only when the check
    confirms the error.

    The check is needed because such an error may be about the recipient of a message and not the token. All processes
    together check a token at most once in QUESTION_INTERVAL. When the check gets no answer, the token stays as it is,
    and the next rejection causes a new check. The function makes network calls, so call it outside of transactions.
    """
    moment = now()
    not_asked = Q(token_questioned_at__isnull=True) | Q(token_questioned_at__lt=moment - QUESTION_INTERVAL)
    working = BusinessAccount.objects.filter(not_asked, waba_id=waba_id, token_invalid_at__isnull=True)
    if not working.update(token_questioned_at=moment):
        return
    account = BusinessAccount.objects.filter(waba_id=waba_id).first()
    if account is None or account.access_token != token:
        return
    try:
        check(account, doubted=True)
    except FAILURES as error:
        log.warning("token_check_failed", account=str(account.pk), error=type(error).__name__)


def accepted_for(account: BusinessAccount, answer: GraphAnswer) -> GraphAnswer:
    """`accepted` for a call with the account's token. A token error starts a check of the token."""
    try:
        return accepted(answer)
    except Refused as refusal:
        if refusal.verdict.token_problem:
            question(waba_id=account.waba_id, token=account.access_token)
        raise


def check(account: BusinessAccount, *, doubted: bool = False) -> None:
    """Call `debug_token` and store the result. If the token works again, its numbers are connected again.

    `doubted` means that Meta rejected the token in another call. Raises one of FAILURES.
    """
    token = account.access_token
    facts = oauth.token_facts(accepted(oauth.debug_token(environment=account.environment, token=token)))
    works = facts.valid and facts.app_id == platform(account.environment).app_id
    if works and (doubted or account.token_invalid_at is not None):
        # Meta rejected the token in a call, so the answer of `debug_token` is not enough: the token must also open the
        # account.
        works = not classify(graph_of(account).account(account.waba_id)).token_problem
    with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
        current = BusinessAccount.objects.select_for_update().filter(pk=account.pk).first()
        if current is None or current.access_token != token:
            return
        current.token_checked_at = now()
        if works:
            set_ends(current, facts)
            current.token_invalid_at = None
        current.save(
            update_fields=[
                "token_checked_at",
                "token_expires_at",
                "data_access_expires_at",
                "token_warned_days",
                "token_invalid_at",
            ]
        )
    if not works:
        state.token_failed(waba_id=account.waba_id, token=token)


def set_ends(account: BusinessAccount, facts: oauth.TokenFacts) -> None:
    """Set when the account's token ends. The warnings come again for a later end. The caller saves the account."""
    former = state.token_end(account)
    account.token_expires_at = facts.expires_at
    account.data_access_expires_at = facts.data_access_expires_at
    end = state.token_end(account)
    if former is not None and (end is None or end > former):
        account.token_warned_days = None


def ends_soon() -> Q:
    """The condition for accounts whose working token ends within 7 days. The first warning is sent 7 days before."""
    return _ending_within(max(TOKEN_WARNING_DAYS))


def _ending_within(days: int) -> Q:
    bound = now() + timedelta(days=days)
    return Q(token_invalid_at__isnull=True) & (
        Q(token_expires_at__lte=bound) | Q(data_access_expires_at__lte=bound)
    )


def warn_of_ends() -> int:
    """Notify tenants of tokens that expire within 7 days, and again within 1 day. Returns the number of notifications.

    A failure for one account is logged, does not stop the others, and is retried at the next run.
    """
    notified = 0
    for days in TOKEN_WARNING_DAYS:
        not_notified = Q(token_warned_days__isnull=True) | Q(token_warned_days__gt=days)
        accounts = BusinessAccount.objects.filter(_ending_within(days) & not_notified).defer("access_token")
        for account_id in accounts.values_list("pk", flat=True):
            try:
                with transaction.atomic():
                    account = accounts.select_for_update(skip_locked=True).filter(pk=account_id).first()
                    if account is not None:
                        state.token_expiring(account, days=days)
                        account.token_warned_days = days
                        account.save(update_fields=["token_warned_days"])
                        notified += 1
            except Exception as error:
                if concerns_all(error):
                    raise
                log.exception("token_end_not_notified", account=str(account_id))
    return notified


class TokensHealthOut(serializers.Serializer[Any]):
    expiring = serializers.IntegerField()
    invalid = serializers.IntegerField()


@admin_health.register(tokens=TokensHealthOut())
def token_report() -> dict[str, Any]:
    """The section `tokens` of `/v1/admin/health`: accounts whose token expires within 7 days, or does not work."""
    return {
        "tokens": {
            "expiring": BusinessAccount.objects.filter(ends_soon()).count(),
            "invalid": BusinessAccount.objects.filter(token_invalid_at__isnull=False).count(),
        }
    }
