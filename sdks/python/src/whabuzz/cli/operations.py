"""Command groups with one command for each operation of a resource, such as `whabuzz webhooks create --url …`.

The commands are derived from the methods of the client. A hand-written command of the same name takes precedence.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import click
from click.core import ParameterSource
from typing_extensions import NotRequired, Required, get_type_hints

from whabuzz import calls, resources, types
from whabuzz.cli.options import limit_option
from whabuzz.cli.send import json_of
from whabuzz.cli.session import Session, columns, json_option
from whabuzz.transport import Download, Pages

SHOWN_MEMBERS = 5
"""How many members of each object a list for people shows."""
_SCALARS = {str: str, int: int, bool: bool, float: float}


class Operations(click.Group):
    """The operations of a resource, for example `webhooks`. A command is created when it is looked up."""

    def __init__(self, *arguments: Any, resource: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.resource = resource
        self._kind: type[Any] = getattr(resources, "".join(part.capitalize() for part in resource.split("_")))

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = [_dashed(name) for name, value in vars(self._kind).items() if _is_operation(name, value)]
        return sorted({*super().list_commands(ctx), *own})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if found := super().get_command(ctx, cmd_name):
            return found
        method = vars(self._kind).get(cmd_name.replace("-", "_"))
        if not _is_operation(cmd_name, method):
            return None
        return _command(cmd_name, self.resource, method)


def _is_operation(name: str, value: Any) -> bool:
    return callable(value) and not name.startswith("_")


def _command(name: str, resource: str, method: Any) -> click.Command:
    """The command of an operation. The parameters of the method are its arguments and options."""
    hints = get_type_hints(method, {**vars(calls), **vars(resources)})
    returns = hints.pop("return")
    given = [each for each in signature(method).parameters.values() if each.name in hints]
    parameters: list[click.Parameter] = []
    body: dict[str, Any] | None = None
    for each in given:
        if each.name == "body":
            named = {one.name.rstrip("_") for one in given}
            body = {name: kind for name, kind in _members(hints["body"]).items() if name not in named}
            parameters += [_option(member, kind) for member, kind in body.items()]
            parameters.append(click.Option(["--data"], help="The body in JSON; @file or - reads it."))
        elif each.name == "file":
            path = click.Path(exists=True, dir_okay=False, path_type=Path)
            parameters.append(click.Argument([each.name], type=path))
        elif each.kind is Parameter.KEYWORD_ONLY:
            if each.name not in {"extra_body", "limit"}:
                required = each.default is Parameter.empty
                parameters.append(_option(each.name, hints[each.name], required=required))
        else:
            parameters.append(click.Argument([each.name]))
    is_list = getattr(returns, "__origin__", None) is Pages
    if returns is Download:
        parameters.append(
            click.Option(["--output"], type=click.Path(path_type=Path), help="Where to save the file.")
        )

    def run(**values: Any) -> None:
        session = click.get_current_context().find_object(Session)
        assert session is not None  # noqa: S101 - the program makes one
        limit, output = values.pop("limit", None), values.pop("output", None)
        if body is not None:
            values["body"] = _body(values, body)
        call = getattr(getattr(session.client, resource), method.__name__)
        answer = call(**{key: value for key, value in values.items() if value not in (None, ())})
        if is_list:
            session.show_each(_first(answer, limit), _line, nothing="None.")
        elif isinstance(answer, Download):
            _save(session, answer, output)
        elif answer is not None:
            session.as_json = True
            session.show(answer, "")

    made = click.Command(name, params=parameters, callback=run, help=method.__doc__)
    if is_list:
        limit_option(made)
    json_option(made)
    return made


def _members(kind: Any) -> dict[str, Any]:
    """The members of a body by name. If the body can have several types, the members of all these types."""
    found: dict[str, Any] = {}
    for each in _alternatives(kind):
        if hasattr(each, "__total__"):
            found |= get_type_hints(each, vars(types))
    return found


def _option(name: str, kind: Any, *, required: bool = False) -> click.Option:
    """The option for a parameter. Its value is a text, a number, a choice, a flag or JSON, or several of these."""
    kinds, flag, many = _alternatives(kind), f"--{_dashed(name)}", False
    [kind, *others] = kinds or [Any]
    if get_origin(kind) is list:
        many, kind = True, get_args(kind)[0]
        kind = _alternatives(kind)[0]
    if get_origin(kind) is Literal and not others:
        choices = [str(each) for each in get_args(kind)]
        return click.Option([flag, name], type=click.Choice(choices), multiple=many, required=required)
    if kind is bool and not many:
        return click.Option([f"{flag}/--no-{_dashed(name)}", name], default=None, required=required)
    if kind in _SCALARS and not others:
        return click.Option([flag, name], type=_SCALARS[kind], multiple=many, required=required)
    return click.Option(
        [flag, name],
        callback=_json,
        multiple=many,
        required=required,
        metavar="JSON",
        help="JSON or a string.",
    )


def _json(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """The value of an option of any type: its JSON, else the text itself. Raises click.BadParameter for broken JSON."""
    if isinstance(value, tuple):
        return tuple(_json(context, parameter, each) for each in value)
    try:
        return None if value is None else json.loads(value)
    except ValueError:
        if value.lstrip()[:1] in {"{", "["}:
            raise click.BadParameter("this is not JSON.", context, parameter) from None
        return value


def _body(values: dict[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    """The body: the JSON of `--data`, with the members that were given as options."""
    data = values.pop("data")
    body = {} if data is None else json_of(data)
    context = click.get_current_context()
    for name in members:
        value = values.pop(name, None)
        # A given option can also have the value None, from the JSON `null`.
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            body[name] = list(value) if isinstance(value, tuple) else value
    return body


def _alternatives(kind: Any) -> list[Any]:
    """The types that a value may have, without None, `Required` and `NotRequired`."""
    if get_origin(kind) in {NotRequired, Required}:
        return _alternatives(get_args(kind)[0])
    arguments = get_args(kind)
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        return [found for each in arguments for found in _alternatives(each)]
    return [] if kind is type(None) else [kind]


def _first(pages: Pages[Any], limit: int) -> Iterator[Any]:
    for item, _ in zip(pages, range(limit), strict=False):
        yield item


def _line(item: Mapping[str, Any]) -> str:
    """The first `SHOWN_MEMBERS` short members of an object in one line."""
    shown = [value for value in item.values() if isinstance(value, (str, int)) and len(str(value)) < 60]
    return columns(*shown[:SHOWN_MEMBERS])


def _save(session: Session, answer: Download, output: Path | None) -> None:
    with answer:
        if output is not None:
            session.tell(f"The file is {answer.save(output)}.")
            return
        for part in answer.chunks():
            sys.stdout.buffer.write(part)


def _dashed(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
