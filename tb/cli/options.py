"""Options of a command from its settings: typer's types and help, and one sentence about an impossible value."""

import dataclasses
import functools
import inspect
import os
import shlex
import sys
from typing import Annotated

import typer

from weft.model.settings import BadSetting, BadSettings, Field, fields, unknown
from weft.tb.cli.needs import check_needs

BAD_USAGE = 2
NUMBER = {int: "INTEGER", float: "NUMBER"}
FROM_MAKE = "WEFT_MAKE"     # set by the Makefile: the user then types make variables


def refuse(sentence):
    """End with one sentence on standard error and exit status 2."""
    print(f"weft: {sentence}", file=sys.stderr)
    raise typer.Exit(BAD_USAGE)


def typed_command():
    """Return the command line of this process."""
    return shlex.join(["weft", *sys.argv[1:]])


def typed(*names):
    """Return an option as the user types it: ``--rtt-us``, ``-s/--size``, or ``RTT_US`` of make."""
    if os.environ.get(FROM_MAKE):
        return names[-1].strip("-").replace("-", "_").upper()
    return "/".join(names)


def with_options(function):
    """Make a command of ``function``.

    A parameter that is annotated with a dataclass of settings becomes an option for each of its fields; a parameter
    that is annotated ``Annotated[type, Setting(…)]`` becomes one option. Other parameters are typer's. A
    :class:`BadSetting` becomes one sentence that names the option, and exit status 2. Missing prerequisites of the
    command become one sentence and exit status 1.
    """
    groups, found, parameters = {}, {}, []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        field = Field.of(parameter.name, parameter.annotation, parameter.default)
        if dataclasses.is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            found |= fields(parameter.annotation)
        elif field is not None:
            found[parameter.name] = field
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def command(**given):
        options = dict(given)
        try:
            made = {name: kind(**{field: given.pop(field) for field in fields(kind)}) for name, kind in groups.items()}
            for settings in made.values():
                refuse_unknown(settings)
            check_needs(function.__name__, options)
            return function(**given, **made)
        except BadSetting as error:
            name = typed(*found[error.name].names) if error.name in found else error.name
            refuse(f"{name} is {str(error.value)!r}; {error.reason}")
        except BadSettings as error:
            refuse(str(error))

    command.settings = found
    command.__signature__ = inspect.Signature([*parameters, *map(_parameter, found.values())])
    return command


def refuse_unknown(settings):
    """Reject a setting that the back end does not support."""
    for field in unknown(settings):
        if field.setting.lack:
            other, = field.setting.backends
            refuse(f"{typed(*field.names)} is not possible with back end {settings.backend}, which has no "
                   f"{field.setting.lack}; use {typed('--backend')}{'=' if os.environ.get(FROM_MAKE) else ' '}{other}")


def check_names(option, given, known):
    """Return the names that were given for an option as a list; raise ``BadSetting`` unless all of them are known."""
    for name in given or ():
        if name not in known:
            raise BadSetting(option, name, f"choose one of {', '.join(known)}")
    return list(given or ())


def _parameter(field):
    """Return typer's parameter of a setting."""
    setting, names = field.setting, field.names
    kind = str if setting.read else field.kind
    if kind is bool:
        names = [f"{names[0]}/--no-{names[0].strip('-')}"] if field.default else names
        option = typer.Option(*names, help=setting.about, metavar="")
    else:
        numeric = kind in (int, float) and not setting.choices
        option = typer.Option(
            *names, help=setting.about, parser=_parser(field),
            show_default=setting.default_text or field.default not in (None, ""),
            metavar=NUMBER[kind] if numeric else "|".join(map(str, setting.choices)) or setting.metavar,
            **{"min": setting.least, "max": setting.most} if numeric else {})
    kind = list[kind] if field.many else kind
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default,
                             annotation=Annotated[kind | None if field.optional else kind, option])


def _parser(field):
    def read(text):
        if text == field.default or not isinstance(text, str):
            return text     # typer's default, which needs no check
        try:
            return field.read(text)
        except BadSetting as error:
            refuse(f"{typed(*field.names)} is {text!r}; {error.reason}")
    return read
