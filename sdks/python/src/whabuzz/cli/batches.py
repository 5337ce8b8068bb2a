"""`whabuzz batch`: send a message to every customer in a file, with a dry run and progress."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import click

from whabuzz import types
from whabuzz.batches import FINAL, bodies, stored
from whabuzz.cli.people import People, columns_in, template_content, text_content
from whabuzz.cli.session import Session, columns, json_option, moment, pass_session

SHOWN_PROBLEMS = 20
EXAMPLES = 3
POLL_SECONDS = 1.0


@click.group()
def batch() -> None:
    """Send to many recipients, and follow the progress."""


@batch.command("send")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--template", help="Send this template.")
@click.option("--language", default="en", show_default=True, help="The template's language.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    help="A column for a parameter of the template's body; repeat in order.",
)
@click.option("--text", help="Send this text; {column} stands for a column's value.")
@click.option("--to-column", default="to", show_default=True, help="The column with the phone numbers.")
@click.option("--from", "from_", help="The number that sends.")
@click.option("--ref", help="A name for this send. With another name the same file is sent again.")
@click.option(
    "--size", type=click.IntRange(1, 10_000), default=1_000, show_default=True, help="Messages in each batch."
)
@click.option("--dry-run", is_flag=True, help="Check the file and show the first messages; send nothing.")
@click.option("--no-wait", is_flag=True, help="Do not wait until all are sent.")
@json_option
@pass_session
def send_file(
    session: Session,
    file: Path,
    template: str | None,
    language: str,
    parameters: tuple[str, ...],
    text: str | None,
    to_column: str,
    from_: str | None,
    ref: str | None,
    size: int,
    dry_run: bool,
    no_wait: bool,
) -> None:
    """Send a message to everybody in a CSV FILE. The first line of the file names its columns.

    The same file with the same options is sent only once. After an interruption, run the command again to continue.
    """
    if (template is None) == (text is None):
        raise click.UsageError("Give --template or --text.")
    if template is not None:
        content, needed = template_content(template, language, list(parameters)), list(parameters)
    else:
        content, needed = text_content(text or ""), columns_in(text or "")
    people = People(file, to_column=to_column, content=content, needed=needed)
    if problems := people.problems(most=SHOWN_PROBLEMS):
        for problem in problems:
            session.tell(f"{file}:{problem.line}: {problem.text}")
        raise click.ClickException("Nothing was sent: fix the file first.")
    total = sum(1 for _ in people.rows())
    if not total:
        raise click.ClickException(f"{file} has no rows.")
    if dry_run:
        examples = [message for message, _ in zip(people.messages(), range(EXAMPLES), strict=False)]
        lines = [json.dumps(message, ensure_ascii=False) for message in examples]
        told = f"{total} messages to send. The first:\n" + "\n".join(lines)
        session.show({"total": total, "examples": examples}, told)
        return
    from_ = from_ or session.only_number()
    how = json.dumps([template, language, parameters, text, to_column, size, from_])
    client_ref = f"{ref or 'csv'}-{people.fingerprint(how, session.credentials.environment)}"
    made: list[types.Batch] = []
    for body in bodies(people.messages(), from_=from_, client_ref=client_ref, size=size):
        made.append(stored(session.client.messages.create_batch(body)))
        session.tell(f"{made[-1]['id']}: {sum_of(made, 'total')} of {total} messages are with the service")
    if not no_wait:
        made = _watched(session, made, total)
        _write_failures(session, people, made, file.with_suffix(".failed.csv"))
    accepted, failed = sum_of(made, "accepted"), sum_of(made, "failed")
    waiting = sum(
        each["total"] - each.get("accepted", 0) - each.get("failed", 0)
        for each in made
        if each.get("status") not in FINAL
    )
    told = f"{accepted} accepted, {failed} failed, {total - accepted - failed - waiting} not sent"
    if waiting:
        told += f", {waiting} waiting"
    session.show({"total": total, "accepted": accepted, "failed": failed, "batches": made}, told)
    if accepted < total and not no_wait:
        raise SystemExit(1)


@batch.command("list")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@json_option
@pass_session
def list_batches(session: Session, limit: int) -> None:
    """List batches, the newest first."""
    session.show_each(
        session.client.messages.list_batches(limit=limit).first_page(), _line, nothing="No batches."
    )


@batch.command("get")
@click.argument("batch_id")
@json_option
@pass_session
def get_batch(session: Session, batch_id: str) -> None:
    """Show a batch: its progress, and why it waits."""
    found = session.client.messages.get_batch(batch_id)
    session.show(found, _line(found))


@batch.command("cancel")
@click.argument("batch_id")
@json_option
@pass_session
def cancel_batch(session: Session, batch_id: str) -> None:
    """Cancel a batch. Messages that were not sent yet are never sent."""
    found = session.client.messages.cancel_batch(batch_id)
    session.show(found, _line(found))


def sum_of(made: Iterable[types.Batch], member: Literal["total", "accepted", "failed"]) -> int:
    """The sum of a count over all batches."""
    return sum(each.get(member, 0) for each in made)


def _watched(session: Session, made: list[types.Batch], total: int) -> list[types.Batch]:
    """Wait until all batches are completed or cancelled, and return them. A bar shows the progress."""
    waits: set[str] = set()
    with click.progressbar(length=total, label="Sending", hidden=session.as_json, file=sys.stderr) as bar:
        while True:
            made = [
                each if each.get("status") in FINAL else session.client.messages.get_batch(each["id"])
                for each in made
            ]
            for each in made:
                if (reason := each.get("waiting_for")) and each["id"] not in waits:
                    waits.add(each["id"])
                    session.tell(f"\n{each['id']} waits: {reason}")
            bar.update(sum_of(made, "accepted") + sum_of(made, "failed") - bar.pos)
            if all(each.get("status") in FINAL for each in made):
                return made
            session.sleep(POLL_SECONDS)


def _write_failures(session: Session, people: People, made: list[types.Batch], target: Path) -> None:
    """Write the rows that were not sent to a CSV file, with their columns and a column `error`. No file without rows.

    The file can be sent, so rows that may have been sent are left out.
    """
    errors = _failures(session, made)
    if unknown := sum_of(made, "total") - sum_of(made, "accepted") - len(errors):
        session.tell(
            f"{unknown} failed rows may have been sent: watch for their message.status before you repeat them."
        )
    if not errors:
        return
    # Without the mark, Excel reads the file in another encoding, and saves it so.
    with target.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, [*people.header, "error"], extrasaction="ignore")
        writer.writeheader()
        for place, (_, row) in enumerate(people.rows()):
            if place in errors:
                writer.writerow({**row, "error": _harmless(errors[place])})
    session.tell(f"The rows that were not sent are in {target}.")


def _failures(session: Session, made: list[types.Batch]) -> dict[int, str]:
    """Why rows were not sent, by their positions in the file."""
    found: dict[int, str] = {}
    first = 0
    for each in made:
        failed, skipped = (
            each.get("failed", 0),
            each["total"] - each.get("accepted", 0) - each.get("failed", 0),
        )
        read = session.client.messages.list_batch_items
        for item in read(each["id"], status="skipped", limit=200) if skipped else ():
            found[first + item["idx"]] = f"skipped: {item['skip_reason']}"
        for item in read(each["id"], status="failed", limit=200) if failed else ():
            response: Any = item.get("response") or {}
            error = response.get("error") or {}
            if error.get("code") == "outcome_unknown" or (item.get("http_status") or 0) >= 500:
                continue
            found[first + item["idx"]] = f"{error.get('code', '')} {error.get('message', '')}".strip()
        first += each["total"]
    return found


def _harmless(text: str) -> str:
    """The text of a cell, changed so that no spreadsheet reads it as a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def _line(found: types.Batch) -> str:
    waits = found.get("waiting_for")
    return columns(
        found["id"],
        moment(found["created_at"]),
        found.get("status"),
        f"{found.get('accepted', 0)} of {found['total']} accepted, {found.get('failed', 0)} failed",
        *([f"waits: {waits}"] if waits else []),
    )
