"""Settings as data: a dataclass field carries its help, its range or choices, its unit, and its back ends.

A field is written ``loss: Annotated[float, Setting("Chance of a loss.", least=0, most=1)] = 0.0``. Checks, command-line
options, make variables, the command that repeats a run, and tables in the documents are generated from it.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any


class BadSettings(ValueError):
    """Impossible combination of settings; the message is a sentence."""


class BadSetting(BadSettings):
    """Impossible value of a setting.

    Attributes
    ----------
    name
        Name of the field.
    reason
        Second half of the sentence: "it must be …", "choose one of …".
    """

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name} is {value!r}; {reason}")
        self.name, self.value, self.reason = name, value, reason


@dataclass(frozen=True)
class Setting:
    """Metadata of one setting.

    Attributes
    ----------
    help
        One sentence.
    least, most
        Range, both ends included.
    choices
        All permitted values.
    unit
        Plural noun.
    read
        Converts typed text to a value; raises ValueError with the second half of a sentence.
    backends
        Back ends that support the setting; empty: all.
    lack
        Missing feature of the other back ends, as the reason to reject the setting there; empty: they ignore it.
    names
        Names of the option; empty: that of the field.
    metavar
        Placeholder of the value in the help.
    default_text
        Text for the default in the help.
    encoded
        The value is text that UTF-8 can encode. A file name need not be.
    """

    help: str
    _: KW_ONLY
    least: float | None = None
    most: float | None = None
    choices: tuple[Any, ...] = ()
    unit: str = ""
    read: Callable[[str], Any] | None = None
    backends: tuple[str, ...] = ()
    lack: str = ""
    names: tuple[str, ...] = ()
    metavar: str = ""
    default_text: str = ""
    encoded: bool = False

    @property
    def about(self) -> str:
        """Help text with the unit."""
        return f"{self.help.removesuffix('.')}, in {self.unit}." if self.unit else self.help


@dataclass(frozen=True)
class Field:
    """A setting with the name, type and default of the field or parameter that carries it.

    Attributes
    ----------
    kind
        Type of the value, or of each value of a list; without None.
    optional, many
        The value may be None; the value is a list.
    """

    name: str
    kind: type[Any]
    optional: bool
    many: bool
    default: Any
    setting: Setting

    @classmethod
    def of(cls, name: str, annotation: Any, default: Any) -> "Field | None":
        """Return the field of an annotation ``Annotated[type, Setting(…)]``; None for any other annotation."""
        kind, *more = typing.get_args(annotation) if typing.get_origin(annotation) is Annotated else (annotation,)
        setting = next((one for one in more if isinstance(one, Setting)), None)
        if setting is None:
            return None
        kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        plain, = (one for one in kinds if one is not types.NoneType)
        many = typing.get_origin(plain) is list
        return cls(name, typing.get_args(plain)[0] if many else plain, types.NoneType in kinds, many, default, setting)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the option on a command line, the longest last."""
        return self.setting.names or (f"--{self.name.replace('_', '-')}",)

    @property
    def ranged(self) -> bool:
        return self.setting.least is not None

    @property
    def reason(self) -> str:
        """Second half of the sentence about an impossible value."""
        setting = self.setting
        if setting.choices:
            return f"choose one of {', '.join(map(str, setting.choices))}"
        if setting.encoded:
            return "it must be text in UTF-8"
        if self.kind is bool:
            return "it must be true or false"
        subject = "a whole number" if self.kind is int else "a number"
        of = f" of {setting.unit}" if setting.unit else ""
        return f"it must be {subject}{of} from {setting.least} to {setting.most}"

    def read(self, text: str) -> Any:
        """Convert a text to a value.

        Raises
        ------
        BadSetting
        """
        try:
            return self.check(self._convert(text))
        except BadSetting:
            raise BadSetting(self.name, text, self.reason) from None
        except ValueError as error:
            raise BadSetting(self.name, text, str(error) if self.setting.read else self.reason) from None

    def _convert(self, text: str) -> Any:
        if self.setting.read:
            return self.setting.read(text)
        if self.setting.choices:
            return next((choice for choice in self.setting.choices if str(choice) == text), text)
        if self.kind is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        return self.kind(text) if self.kind in (int, float, Path) else text

    def check(self, value: Any) -> Any:
        """Return ``value`` if it is valid.

        Raises
        ------
        BadSetting
        """
        setting, kind = self.setting, self.kind
        if value is None and self.optional:
            return None
        if setting.choices:
            good = value in setting.choices and not isinstance(value, bool)
        elif setting.read:
            good = True
        elif setting.encoded:
            good = isinstance(value, str) and _in_utf8(value)
        elif kind is bool:
            good = isinstance(value, bool)
        elif kind in (int, float):
            good = (isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
                    and (setting.least is None or value >= setting.least)
                    and (setting.most is None or value <= setting.most))
        else:
            good = True
        if not good:
            raise BadSetting(self.name, value, self.reason)
        return value


def _in_utf8(text: str) -> bool:
    try:
        return bool(text.encode()) or not text
    except UnicodeEncodeError:
        return False


_FIELDS: dict[type[Any], dict[str, Field]] = {}


def fields(settings: type[Any]) -> dict[str, Field]:
    """Return ``{name: Field}`` of the fields of a dataclass that carry a :class:`Setting`."""
    if settings not in _FIELDS:
        hints = typing.get_type_hints(settings, include_extras=True)
        found = (Field.of(field.name, hints[field.name], field.default) for field in dataclasses.fields(settings))
        _FIELDS[settings] = {field.name: field for field in found if field is not None}
    return _FIELDS[settings]


def check(settings: object) -> None:
    """Check every field of a dataclass of settings.

    Raises
    ------
    BadSetting
    """
    for name, field in fields(type(settings)).items():
        field.check(getattr(settings, name))


def unknown(settings: Any) -> list[Field]:
    """Return the fields that are set, but not supported by the back end of the settings."""
    return [field for name, field in fields(type(settings)).items()
            if field.setting.backends and settings.backend not in field.setting.backends
            and getattr(settings, name) != field.default]


def words(settings: Any) -> Iterator[str]:
    """Yield command-line words that reproduce these settings: all that the back end supports and that are not off."""
    for name, field in fields(type(settings)).items():
        value, backends = getattr(settings, name), field.setting.backends
        if value in (None, "") or value is False or (backends and settings.backend not in backends):
            continue
        yield field.names[-1]
        if value is not True:
            yield str(value)
