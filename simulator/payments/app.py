"""The payment provider's routes: Razorpay's API under /v1, the payer's pages, the control API under /sim."""

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from html import escape
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
from aiohttp import web

from simulator.config import Config
from simulator.control.views import answer, read, refusals
from simulator.parts import SIMULATOR
from simulator.payments.book import SCENARIOS, Book, RefusedError, Row
from simulator.payments.contract import CONTRACT, UnfitRequest, check_request
from simulator.payments.hooks import Hooks, shown


class Payments:
    """The simulated payment provider: its book and its webhooks."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.hooks = Hooks(config)
        self.book = Book(self.hooks.publish, lambda: config.base_url)

    def clear(self) -> None:
        """Delete everything."""
        self.book.clear()
        self.hooks.clear()


PAYMENTS: web.AppKey[Payments] = web.AppKey("payments", Payments)
Handler = Callable[[Book, web.Request, Row], Awaitable[Any]]


def _email_in(book: Book, body: Row) -> str:
    customer = body.get("customer")
    if isinstance(customer, dict):
        return str(customer.get("email", ""))
    return str(body.get("email", ""))


def api(call: str, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Wrap a handler: check authentication and members, record the request, and apply scenarios that lose answers."""

    async def serve(request: web.Request) -> web.StreamResponse:
        payments, raw = request.app[PAYMENTS], await request.read()
        book, config = payments.book, payments.config
        request.app[SIMULATOR].requests.add(
            method=request.method,
            path=request.path,
            edge=request.path.rsplit("/", 1)[-1],
            query=request.query_string,
            body=raw,
            node="payments",
        )
        given = request.headers.get("Authorization", "").removeprefix("Basic ")
        wanted = base64.b64encode(f"{config.razorpay_key_id}:{config.razorpay_key_secret}".encode()).decode()
        if not hmac.compare_digest(given.encode(), wanted.encode()):
            return _error(401, "Authentication failed", None)
        try:
            body = orjson.loads(raw) if raw.strip() else {}
            if request.method == "POST":
                check_request(_variant(call, body), body)
            elif unknown := set(request.query) - set(CONTRACT["calls"][call].get("query", [])):
                raise UnfitRequest(f"{unknown} is/are not required and should not be sent", unknown.pop())
            scenario = book.scenario_of(_email_in(book, body))
            if scenario == "500" and request.method == "POST":
                return _error(500, "We are facing some trouble completing your request.", "server_error")
            result = await handler(book, request, body)
        except RefusedError as refusal:
            return _error(400, refusal.description, refusal.reason)
        except UnfitRequest as problem:
            return _error(400, str(problem), "input_validation_failed", field=problem.field)
        except (KeyError, TypeError, ValueError) as problem:
            return _error(400, f"Missing or wrong: {problem}", "input_validation_failed")
        if scenario == "timeout_after_accept" and request.method == "POST" and request.transport:
            request.transport.abort()
        return answer(shown(result))

    return serve


def _variant(call: str, body: Row) -> str:
    """The call's name in the contract. Each payment method has a separate registration call in the contract."""
    if call != "register":
        return call
    method = (body.get("subscription_registration") or {}).get("method")
    if f"register_{method}" not in CONTRACT["calls"]:
        raise UnfitRequest("The method is invalid.", "method")
    return f"register_{method}"


def _error(status: int, description: str, reason: str | None, field: str | None = None) -> web.Response:
    error: Row = {
        "code": "SERVER_ERROR" if status >= 500 else "BAD_REQUEST_ERROR",
        "description": description,
        "source": "business",
        "step": "payment_initiation",
        "reason": reason,
        "metadata": {},
        **({"field": field} if field else {}),
    }
    return answer({"error": error}, status=status)


def _known(rows: dict[str, Row], key: str) -> Row:
    if key not in rows:
        raise RefusedError("The id provided does not exist")
    return rows[key]


async def auth_links(book: Book, _: web.Request, body: Row) -> Row:
    """POST /v1/subscription_registration/auth_links: create a registration link for a mandate."""
    return book.register(body)


async def cancel_registration(book: Book, request: web.Request, _: Row) -> Row:
    """POST /v1/invoices/{id}/cancel: cancel a registration link."""
    return book.cancel_registration(_known(book.registrations, request.match_info["id"])["id"])


async def create_order(book: Book, _: web.Request, body: Row) -> Row:
    """POST /v1/orders: create an order."""
    return book.order(body["amount"], str(body.get("receipt", "")))


async def list_orders(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/orders?receipt=: list orders."""
    receipt = request.query.get("receipt")
    return _items([row for row in book.orders.values() if receipt in {None, row["receipt"]}])


async def order_payments(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/orders/{id}/payments: list the payments of an order."""
    order = _known(book.orders, request.match_info["order_id"])
    return _items([row for row in book.payments.values() if row["order_id"] == order["id"]])


async def recurring(book: Book, _: web.Request, body: Row) -> Row:
    """POST /v1/payments/create/recurring: request a debit."""
    return {"razorpay_payment_id": book.debit(body)["id"]}


async def get_payment(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/payments/{id}: read a payment."""
    return _known(book.payments, request.match_info["payment_id"])


async def refund_payment(book: Book, request: web.Request, body: Row) -> Row:
    """POST /v1/payments/{id}/refund: refund a payment."""
    payment = _known(book.payments, request.match_info["payment_id"])
    return book.refund(
        payment, int(body["amount"] if "amount" in body else payment["amount"]), body.get("receipt")
    )


async def payment_refunds(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/payments/{id}/refunds: list the refunds of a payment."""
    payment = _known(book.payments, request.match_info["payment_id"])
    return _items([row for row in book.refunds.values() if row["payment_id"] == payment["id"]])


async def get_token(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/customers/{id}/tokens/{id}: read a token."""
    return _known(book.tokens, request.match_info["token_id"])


async def cancel_token(book: Book, request: web.Request, _: Row) -> Row:
    """PUT /v1/customers/{id}/tokens/{id}/cancel: cancel a UPI mandate at the provider and at the bank."""
    token = _known(book.tokens, request.match_info["token_id"])
    if token["method"] != "upi":
        raise RefusedError("Only tokens of UPI can be cancelled.")
    book.change_token(token["id"], "cancelled")
    return {"status": "cancellation_initiated"}


async def delete_token(book: Book, request: web.Request, _: Row) -> Row:
    """DELETE /v1/customers/{id}/tokens/{id}: delete the token. A UPI mandate stays valid at the bank."""
    token = _known(book.tokens, request.match_info["token_id"])
    if token["method"] != "upi":
        book.change_token(token["id"], "cancelled")
    return {"deleted": True}


async def create_link(book: Book, _: web.Request, body: Row) -> Row:
    """POST /v1/payment_links: create a payment link."""
    return book.link(body)


async def list_links(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/payment_links?reference_id=: list payment links."""
    reference = request.query.get("reference_id")
    return {"payment_links": [row for row in book.links.values() if reference in {None, row["reference_id"]}]}


async def get_link(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/payment_links/{id}: read a payment link."""
    return _known(book.links, request.match_info["link_id"])


async def cancel_link(book: Book, request: web.Request, _: Row) -> Row:
    """POST /v1/payment_links/{id}/cancel: cancel a payment link."""
    link = _known(book.links, request.match_info["link_id"])
    if link["status"] != "created":
        raise RefusedError("The link is not payable any more.")
    link |= {"status": "cancelled", "cancelled_at": book.now()}
    return link


async def list_settlements(book: Book, _: web.Request, __: Row) -> Row:
    """GET /v1/settlements: list settlements."""
    return _items(list(reversed(book.settlements.values())))


async def settled_items(book: Book, request: web.Request, _: Row) -> Row:
    """GET /v1/settlements/recon/combined?year=&month=&day=: list the settled items of a month or day."""
    query = request.query
    day = int(query["day"]) if "day" in query else None
    rows = book.settled_on(int(query["year"]), int(query["month"]), day)
    skip = int(query.get("skip", 0))
    return _items(rows[skip : skip + int(query.get("count", 1000))])


def _items(rows: list[Row]) -> Row:
    return {"entity": "collection", "count": len(rows), "items": rows}


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><link rel="stylesheet" href="/static/app.css"><main class="page">
<div class="card"><p class="soft">Simulated payments</p><h1>{title}</h1><p>{text}</p>{form}</div></main></html>"""
_FORM = """<form method="post" class="row"><button name="answer" value="approve">Approve</button>
<button name="answer" value="decline" class="plain">Decline</button>
<button name="answer" value="abandon" class="plain">Abandon</button></form>"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
}


def _page(title: str, text: str, *, form: bool) -> web.Response:
    html = _PAGE.format(title=escape(title), text=escape(text), form=_FORM if form else "")
    return web.Response(text=html, content_type="text/html", headers=_HEADERS)


async def show_mandate(request: web.Request) -> web.StreamResponse:
    """GET, POST /sim/mandate/{id}: the bank's page on which the payer approves a mandate."""
    book = request.app[PAYMENTS].book
    row = book.registrations.get(request.match_info["id"])
    if row is None:
        raise KeyError("such mandate")
    text = f"Up to ₹{row['_max_amount'] / 100:,.2f} per debit by {row['_method']}."
    if row["status"] != "issued":
        said = "approved" if row["status"] == "paid" else row["status"]
        return _page("Mandate", f"This mandate is {said}.", form=False)
    chosen = await _chosen(request)
    if chosen not in {"approve", "decline"}:
        return _page("Approve a mandate?", text, form=chosen is None)
    book.answer_mandate(row, approved=chosen == "approve")
    return _page("Done", "You may close this page.", form=False)


async def show_link(request: web.Request) -> web.StreamResponse:
    """GET, POST /sim/pay/{id}: the payer's page of a payment link."""
    book = request.app[PAYMENTS].book
    row = book.links.get(request.match_info["id"])
    if row is None:
        raise KeyError("such payment link")
    if row["status"] != "created":
        return _page("Payment", f"This link is {row['status']}.", form=False)
    chosen = await _chosen(request)
    if chosen not in {"approve", "decline"}:
        return _page("Pay?", f"₹{row['amount'] / 100:,.2f}", form=chosen is None)
    payment = book.answer_link(row, approved=chosen == "approve")
    if payment is None or row["status"] != "paid":
        return _page("Payment", "The bank declined. You may try again.", form=True)
    values = {
        "id": row["id"],
        "reference_id": row["reference_id"],
        "status": "paid",
        "payment_id": payment["id"],
    }
    signed = "|".join((row["id"], row["reference_id"], "paid", payment["id"]))
    return _back(
        request,
        row,
        {
            f"razorpay_payment_link_{k}" if k != "payment_id" else "razorpay_payment_id": v
            for k, v in values.items()
        },
        signed,
    )


async def _chosen(request: web.Request) -> str | None:
    return str((await request.post()).get("answer", "abandon")) if request.method == "POST" else None


def _back(request: web.Request, row: Row, values: dict[str, str], signed: str) -> web.Response:
    """Redirect to the merchant's page with a valid signature, or show that the payment is done."""
    if not row.get("callback_url"):
        return _page("Done", "You may close this page.", form=False)
    secret = request.app[PAYMENTS].config.razorpay_key_secret
    values["razorpay_signature"] = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
    glue = "&" if urlsplit(row["callback_url"]).query else "?"
    return web.Response(status=303, headers={"Location": f"{row['callback_url']}{glue}{urlencode(values)}"})


async def advance(request: web.Request) -> web.Response:
    """POST /sim/clock/advance {hours}: advance the payment clock."""
    hours = float((await read(request)).get("hours", 0))
    if not 0 <= hours <= 24 * 366:
        raise ValueError("hours is from 0 to a year")
    book = request.app[PAYMENTS].book
    book.advance(hours)
    return answer({"now": book.now(), "waiting": len(book.due)})


async def set_scenario(request: web.Request) -> web.Response:
    """POST /sim/scenario {scenario, email?}: set the outcome of payments, for one payer or all."""
    body = await read(request)
    if body.get("scenario") not in SCENARIOS:
        raise ValueError(f"scenario is one of {', '.join(SCENARIOS)}")
    request.app[PAYMENTS].book.scenarios[str(body.get("email") or "*")] = body["scenario"]
    return answer({"scenarios": request.app[PAYMENTS].book.scenarios})


async def dashboard_refund(request: web.Request) -> web.Response:
    """POST /sim/refund {payment_id, amount?}: refund a payment, as a merchant does on the provider's dashboard."""
    body, book = await read(request), request.app[PAYMENTS].book
    payment = book.payments[str(body["payment_id"])]
    try:
        return answer(
            book.refund(payment, int(body["amount"] if "amount" in body else payment["amount"]), None)
        )
    except RefusedError as refusal:
        raise ValueError(refusal.description) from None


async def settle(request: web.Request) -> web.Response:
    """POST /sim/settle: pay the collected payments to the merchant's bank account."""
    return answer({"settlement": request.app[PAYMENTS].book.settle()})


async def get_payments(request: web.Request) -> web.Response:
    """GET /sim/payments: list all objects of the provider, and the webhooks that it sent."""
    payments = request.app[PAYMENTS]
    book = payments.book
    everything = shown(
        {
            "now": book.now(),
            "orders": list(book.orders.values()),
            "payments": list(book.payments.values()),
            "tokens": list(book.tokens.values()),
            "payment_links": list(book.links.values()),
            "refunds": list(book.refunds.values()),
            "registrations": list(book.registrations.values()),
            "settlements": list(book.settlements.values()),
        }
    )
    return answer({**everything, "webhooks": payments.hooks.view(), "webhook_url": payments.hooks.url})


async def put_payments(request: web.Request) -> web.Response:
    """PUT /sim/payments {webhook_url}: set the URL for webhooks. With null, no webhooks are sent."""
    url = (await read(request)).get("webhook_url")
    request.app[PAYMENTS].hooks.url = str(url) if url else None
    return answer({"webhook_url": request.app[PAYMENTS].hooks.url})


async def reset(request: web.Request) -> web.Response:
    """POST /sim/payments/reset: delete every payment and reset the clock to real time."""
    request.app[PAYMENTS].clear()
    return answer({"reset": True})


def add_routes(app: web.Application) -> None:
    """Register the payment provider in the application."""
    payments = app[PAYMENTS] = Payments(app[SIMULATOR].config)

    async def stop(_: web.Application) -> None:
        payments.clear()

    app.on_shutdown.append(stop)
    for call, method, path, handler in (
        ("register", "POST", "/v1/subscription_registration/auth_links", auth_links),
        ("cancel_registration", "POST", "/v1/invoices/{id}/cancel", cancel_registration),
        ("create_order", "POST", "/v1/orders", create_order),
        ("list_orders", "GET", "/v1/orders", list_orders),
        ("order_payments", "GET", "/v1/orders/{order_id}/payments", order_payments),
        ("debit", "POST", "/v1/payments/create/recurring", recurring),
        ("get_payment", "GET", "/v1/payments/{payment_id}", get_payment),
        ("refund", "POST", "/v1/payments/{payment_id}/refund", refund_payment),
        ("payment_refunds", "GET", "/v1/payments/{payment_id}/refunds", payment_refunds),
        ("get_token", "GET", "/v1/customers/{customer_id}/tokens/{token_id}", get_token),
        ("cancel_token", "PUT", "/v1/customers/{customer_id}/tokens/{token_id}/cancel", cancel_token),
        ("delete_token", "DELETE", "/v1/customers/{customer_id}/tokens/{token_id}", delete_token),
        ("create_link", "POST", "/v1/payment_links", create_link),
        ("list_links", "GET", "/v1/payment_links", list_links),
        ("get_link", "GET", "/v1/payment_links/{link_id}", get_link),
        ("cancel_link", "POST", "/v1/payment_links/{link_id}/cancel", cancel_link),
        ("list_settlements", "GET", "/v1/settlements", list_settlements),
        ("settled_items", "GET", "/v1/settlements/recon/combined", settled_items),
    ):
        app.router.add_route(method, path, api(call, handler))
    for method, path, control in (
        ("GET", "/sim/mandate/{id}", show_mandate),
        ("POST", "/sim/mandate/{id}", show_mandate),
        ("GET", "/sim/pay/{id}", show_link),
        ("POST", "/sim/pay/{id}", show_link),
        ("POST", "/sim/clock/advance", advance),
        ("POST", "/sim/scenario", set_scenario),
        ("POST", "/sim/refund", dashboard_refund),
        ("POST", "/sim/settle", settle),
        ("GET", "/sim/payments", get_payments),
        ("PUT", "/sim/payments", put_payments),
        ("POST", "/sim/payments/reset", reset),
    ):
        app.router.add_route(method, path, refusals(control))
