"""Tests of cached Verilog: components are identified by their construction, and cached only if that is complete."""

import enum
import gc
import warnings
from dataclasses import dataclass

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from weft.hdl import verilog
from weft.tb.sim.flow import build, kept_text


class Mode(enum.Enum):
    ADD = 1
    HOLD = 2


@dataclass(frozen=True)
class Settings:
    step: int = 1
    modes: tuple = (Mode.ADD,)


class Inner(Component):
    def __init__(self, settings, width=8):
        self._settings = settings
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, _platform):
        m = Module()
        m.d.sync += self.o.eq(self.i + self._settings.step)
        return m


class Outer(Component):
    i: In(8)
    o: Out(8)

    def __init__(self, inner, note=None):
        self.inner, self.note = inner, note
        super().__init__()

    def elaborate(self, _platform):
        m = Module()
        m.submodules.inner = self.inner
        m.d.comb += [self.inner.i.eq(self.i), self.o.eq(self.inner.o)]
        return m


def described(component):
    kept_text.used(component)
    return kept_text.described(component)


def test_descriptions_are_equal_exactly_for_equal_components():
    alike = {described(Outer(Inner(Settings()), note)) for note in (None, None)}
    others = [described(component) for component in (
        Outer(Inner(Settings(2))), Outer(Inner(Settings(modes=(Mode.HOLD,)))), Outer(Inner(Settings()), "note"),
        Outer(Inner(Settings()), [1]), Outer(Inner(Settings()), (1,)), Outer(Inner(Settings()), {"a": 1}),
        Inner(Settings()), Inner(Settings(), 9))]
    assert len(alike) == 1 and len({*alike, *others}) == 1 + len(others)


@pytest.mark.parametrize("held", [object(), lambda: 1, [Signal()], {"a": object()}])
def test_value_without_a_text_form_is_rejected(held):
    with pytest.raises(kept_text.NotPlain):
        described(Outer(Inner(Settings()), held))


def test_class_inside_a_function_is_rejected():
    class Local(Inner):
        pass
    with pytest.raises(kept_text.NotPlain, match="locals"):
        described(Local(Settings()))


@pytest.fixture
def elaborated(tmp_path, monkeypatch):
    """Return the list of elaborated components, with an empty cache."""
    done, real = [], verilog.rtlil_text
    monkeypatch.setattr(build, "BUILD_ROOT", tmp_path)
    monkeypatch.setattr(verilog, "rtlil_text", lambda *args: done.append(args) or real(*args))
    return done


def test_equal_component_is_elaborated_once(elaborated):
    texts = {build.elaborate(Outer(Inner(Settings())), "top") for _ in range(3)}
    assert len(texts) == len(elaborated) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert build.elaborate(Outer(Inner(Settings(2))), "top") not in texts
    assert build.elaborate(Outer(Inner(Settings())), "other") not in texts
    assert len(elaborated) == 3


def test_component_without_description_is_elaborated_each_time(elaborated):
    for _ in range(2):
        build.elaborate(Outer(Inner(Settings()), object()), "top")
    assert len(elaborated) == 2
