"""Calls of the Graph API with an account's token: a refusal is an exception that the views pass through verbatim.

Used by the onboarding, the number operations and the sync. A token that the upstream no longer takes is marked here.
"""

from gateway.upstream.client import Answer
from gateway.upstream.errors import Verdict, judge
from gateway.upstream.numbers import Graph
from phone_numbers import connection
from phone_numbers.models import BusinessAccount


class Refused(Exception):
    """The upstream answered with an error; `passed_through(answer, verdict)` is what our caller gets."""

    def __init__(self, answer: Answer, verdict: Verdict) -> None:
        super().__init__(f"upstream error {verdict.code}")
        self.answer, self.verdict = answer, verdict


def accepted(answer: Answer) -> Answer:
    """The answer, when it is a success. Raises Refused for an error, MetaUnreachable for what is no answer."""
    verdict = judge(answer)
    if not verdict.ok:
        raise Refused(answer, verdict)
    return answer


def graph_of(account: BusinessAccount) -> Graph:
    """The Graph API as the account's stored token opens it."""
    return Graph(account.environment, account.access_token)


def accepted_for(account: BusinessAccount, answer: Answer) -> Answer:
    """`accepted` for a call with the account's token, which is marked when the upstream does not take it."""
    try:
        return accepted(answer)
    except Refused as refusal:
        if refusal.verdict.token_problem:
            connection.token_failed(waba_id=account.waba_id, token=account.access_token)
        raise
