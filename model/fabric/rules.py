"""Compiled rules: the methods of :mod:`weft.driver.congestion` on records with the fields of its objects.

Record ``w.none[flow]`` and its neighbours have the state of one algorithm, and every event goes to the one that
the flow uses.
"""

import typing
from types import FunctionType
from typing import Any

import numpy as np

from weft.driver.congestion.algorithm import NS_BITS
from weft.driver.congestion.algorithms import ALGORITHMS
from weft.driver.terms.settings import fields

from ..machine_code import compiled

NONE, DCQCN, SWIFT, RATE_MATCH = range(4)
NAMES = tuple(ALGORITHMS)


def _settings_record(settings: type[Any]) -> np.dtype:
    return np.dtype([(name, "i8" if field.kind is int else "f8") for name, field in fields(settings).items()]
                    or [("unused", "f8")])


def record(name: str) -> np.dtype:
    """Return the record type of an algorithm's state."""
    algorithm, settings = ALGORITHMS[name]
    kinds = {int: "i8", float: "f8", settings: _settings_record(settings)}
    return np.dtype([(field, kinds[hint]) for field, hint in typing.get_type_hints(algorithm).items()])


def store(target: np.void, algorithm: Any) -> None:
    """Copy an algorithm's object into a record."""
    for name in typing.get_type_hints(type(algorithm)):
        value = getattr(algorithm, name, None)
        if name == "settings":
            for field in fields(type(value)):
                target[name][field] = getattr(value, field)
        elif value is not None:
            target[name] = value


def method(name: str, event: str) -> Any:
    """Return a compiled method of an algorithm; the functions of its module that it calls are compiled with it."""
    return _with_helpers(getattr(ALGORITHMS[name][0], event))


def _with_helpers(function: FunctionType) -> Any:
    known = function.__globals__
    helpers = {name: _with_helpers(known[name]) for name in function.__code__.co_names
               if isinstance(known.get(name), FunctionType)}
    copy = FunctionType(function.__code__, known | helpers, function.__name__)
    return compiled(copy)


_ack_none, _ack_dcqcn, _ack_swift, _ack_rate_match = (method(name, "on_ack") for name in NAMES)
_delay_none, _delay_dcqcn, _delay_swift, _delay_rate_match = (method(name, "on_delay") for name in NAMES)
_cnp_none, _cnp_dcqcn, _cnp_swift, _cnp_rate_match = (method(name, "on_cnp") for name in NAMES)
_loss_none, _loss_dcqcn, _loss_swift, _loss_rate_match = (method(name, "on_loss") for name in NAMES)


@compiled
def _read(w, flow, algorithm):
    """Copy the decision into the flow: bytes in a nanosecond, and bytes."""
    f = w.flow[flow]
    f.rate, f.limit = algorithm.rate / NS_BITS, algorithm.limit


@compiled
def on_ack(w, flow, acked, in_flight):
    """Report an acknowledgement."""
    f, now = w.flow[flow], w.s.now
    if f.algorithm == NONE:
        _ack_none(w.none[flow], now, acked, in_flight)
        _read(w, flow, w.none[flow])
    elif f.algorithm == DCQCN:
        _ack_dcqcn(w.dcqcn[flow], now, acked, in_flight)
        _read(w, flow, w.dcqcn[flow])
    elif f.algorithm == SWIFT:
        _ack_swift(w.swift[flow], now, acked, in_flight)
        _read(w, flow, w.swift[flow])
    else:
        _ack_rate_match(w.rate_match[flow], now, acked, in_flight)
        _read(w, flow, w.rate_match[flow])


@compiled
def on_delay(w, flow, rtt):
    """Report a round trip time."""
    f, now = w.flow[flow], w.s.now
    if f.algorithm == NONE:
        _delay_none(w.none[flow], now, rtt)
    elif f.algorithm == DCQCN:
        _delay_dcqcn(w.dcqcn[flow], now, rtt)
        _read(w, flow, w.dcqcn[flow])
    elif f.algorithm == SWIFT:
        _delay_swift(w.swift[flow], now, rtt)
        _read(w, flow, w.swift[flow])
    else:
        _delay_rate_match(w.rate_match[flow], now, rtt)
        _read(w, flow, w.rate_match[flow])


@compiled
def on_cnp(w, flow):
    """Report a congestion notification."""
    f, now = w.flow[flow], w.s.now
    if f.algorithm == NONE:
        _cnp_none(w.none[flow], now)
    elif f.algorithm == DCQCN:
        _cnp_dcqcn(w.dcqcn[flow], now)
        _read(w, flow, w.dcqcn[flow])
    elif f.algorithm == SWIFT:
        _cnp_swift(w.swift[flow], now)
    else:
        _cnp_rate_match(w.rate_match[flow], now)


@compiled
def on_loss(w, flow, lost):
    """Report lost bytes."""
    f, now = w.flow[flow], w.s.now
    if f.algorithm == NONE:
        _loss_none(w.none[flow], now, lost)
    elif f.algorithm == DCQCN:
        _loss_dcqcn(w.dcqcn[flow], now, lost)
    elif f.algorithm == SWIFT:
        _loss_swift(w.swift[flow], now, lost)
        _read(w, flow, w.swift[flow])
    else:
        _loss_rate_match(w.rate_match[flow], now, lost)
        _read(w, flow, w.rate_match[flow])
