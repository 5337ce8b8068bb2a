"""Calls of the Graph API with an account's token: a refusal is an exception that the views pass through verbatim.

Used by the onboarding, the number operations, the templates and the syncs.
"""

from gateway.api.errors import MetaUnreachable
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable
from gateway.upstream.judging import Verdict, judge
from gateway.upstream.numbers import Graph
from phone_numbers.models import BusinessAccount


class Refused(Exception):
    """The upstream answered with an error; `passed_through(answer, verdict)` is what our caller gets."""

    def __init__(self, answer: GraphAnswer, verdict: Verdict) -> None:
        super().__init__(f"upstream error {verdict.code}")
        self.answer, self.verdict = answer, verdict


FAILURES = (Refused, MetaUnreachable, UpstreamUnreachable)
"""What a call may raise: refused, no usable answer, no answer."""


def accepted(answer: GraphAnswer) -> GraphAnswer:
    """The answer, when it is a success. Raises Refused for an error, MetaUnreachable for what is no answer."""
    verdict = judge(answer)
    if not verdict.ok:
        raise Refused(answer, verdict)
    return answer


def graph_of(account: BusinessAccount) -> Graph:
    """The Graph API as the account's stored token opens it."""
    return Graph(account.environment, account.access_token)
