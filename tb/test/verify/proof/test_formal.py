"""Tests of proofs that take seconds, of faulty copies, and of requirements of specifications.

``make formal`` runs all proofs.
"""

import json

import pytest

from weft.tb.sim.flow.aliases import current_fields
from weft.tb.test.verify.proof.sample import (
    Counter,
    CounterSpec,
    GivenCounterSpec,
    HastyCounterSpec,
    HolderSpec,
    LateCounterSpec,
)
from weft.tb.verify.proof import ledger
from weft.tb.verify.proof.checkers import write_bits
from weft.tb.verify.proof.engine import Result, prove, refute
from weft.tb.verify.proof.faulty import mutant
from weft.tb.verify.proof.ledger import Ledger
from weft.tb.verify.proof.prefetch import RestingPrefetchSpec
from weft.tb.verify.proof.retire import RetireSpec
from weft.tb.verify.proof.return_path import HoldSpec, ReporterSpec
from weft.tb.verify.proof.ring_reader import RingReaderSpec
from weft.tb.verify.proof.ring_writer import RingWriterSpec
from weft.tb.verify.proof.run import MODULES, faulty_copies, specifications
from weft.tb.verify.proof.software_matched import SoftwareMatchedSpec
from weft.tb.verify.proof.specification import MARGIN, Spec
from weft.tb.verify.proof.splitter import SplitterSpec
from weft.tb.verify.proof.window import WindowSpec
from weft.tb.verify.proof.work_list import FewSlotsSpec

pytestmark = pytest.mark.formal

QUICK = [
    (RingWriterSpec, ["no unconsumed entry is overwritten", "every entry is written once, in order", "a full ring"]),
    (RingReaderSpec, ["a request lies inside the ring and one page", "requests are contiguous",
                      "responses overtake each other"]),
    (RetireSpec, ["no space for an order", "a report of a later order"]),
    (HoldSpec, ["reports of source 0 leave in order, each once", "an offered item is stable",
                "a report waits for its packet"]),
    (ReporterSpec, ["no report before its packet was placed", "a source has to wait"]),
    (SplitterSpec, ["pieces follow each other", "no deadlock: an accepted request is offered at once"]),
    (SoftwareMatchedSpec,
     ["an order extends to the newest header", "an order is offered after a bounded number of others"]),
    (FewSlotsSpec, ["no due QP is left once the list is idle", "an empty list has no due QP",
                    "a search finds a QP that did not fit into the queue"]),
    (RestingPrefetchSpec, ["no read crosses a page", "one read for several nodes", "a bad node breaks its list",
                           "a last node is read again since its list grew"]),
    (WindowSpec, ["a full 32-bit wrap"]),
]

BEYOND = [("(self.count != LAST)", "(self.count != LAST + 1)")]


def book(spec, *faulty):
    """Return a ledger with a specification, and with results of faulty copies for its check."""
    ledger = Ledger()
    ledger.enter(list(prove(spec())))
    for result in faulty:
        ledger.enter([Result(spec.name, "it never goes beyond 12", "faulty", None, 0, result, 3)], BEYOND)
    return ledger


def test_complete_specification_passes():
    assert book(CounterSpec, "caught").faults() == []


def test_a_cover_too_near_to_the_bound_fails():
    faults = book(HastyCounterSpec, "caught").faults()
    assert faults == [f"test_counter: 'it comes to its end' is not reached in {12 - 1} cycles"]


def test_cached_cover_beyond_the_bound_fails():
    ledger = book(CounterSpec, "caught")
    next(r for r in ledger.results if r.kind == "cover").at = 13
    assert f"reached in cycle 13, but the proof ends at {CounterSpec.bound}" in ledger.faults()[0]


@pytest.mark.parametrize("faulty", [(), ("not caught",)])
def test_check_without_a_caught_faulty_copy_fails(faulty):
    faults = book(CounterSpec, *faulty).faults()
    assert "test_counter: no faulty copy is caught by 'it never goes beyond 12'" in faults
    assert len(faults) == 1 + len(faulty)


def test_violated_check_fails():
    ledger = Ledger()
    ledger.enter(list(prove(CounterSpec(mutant(Counter, *BEYOND)))))
    assert "'it never goes beyond 12' is failed in cycle 13" in ledger.faults()[0]


def test_a_specification_without_covers_fails():
    ledger = Ledger()
    ledger.enter([r for r in prove(CounterSpec()) if r.kind != "cover"])
    assert "test_counter: has no cover" in ledger.faults()


def test_named_check_catches_the_faulty_copy():
    result = refute(CounterSpec(mutant(Counter, *BEYOND)), "it never goes beyond 12")
    assert (result.result, result.at) == ("caught", 13)
    assert refute(CounterSpec(), "it never goes beyond 12").result == "not caught"


def test_sub_block_can_be_faulty():
    assert not any(r.good for r in prove(HolderSpec(replaced={Counter: mutant(Counter, *BEYOND)})) if r.kind != "cover")
    assert all(r.good for r in prove(HolderSpec()))


def test_given_checks_are_assumed_for_the_block_and_not_for_faulty_copies():
    faulty = GivenCounterSpec(mutant(Counter, *BEYOND))
    results = {r.property: r.result for r in prove(faulty) if r.kind != "cover"}
    assert results == {"it never goes beyond 12": "failed", "it never is 13": "proven"}
    assert refute(GivenCounterSpec(mutant(Counter, *BEYOND)), "it never is 13").at == 13
    assert all(r.good for r in prove(GivenCounterSpec()))


def test_a_run_may_start_anywhere():
    results = {r.property: r for r in prove(LateCounterSpec())}
    assert results["it comes to its end"].at == 5
    assert results["it never goes beyond 12"].good


def test_only_a_register_may_start_anywhere(tmp_path):
    spec = HolderSpec()         # its counter is nested twice: the output is a wire, not the register
    text, _ = spec.convert()
    for wire in ("dut.gone", "dut.count"):
        spec.anywhere = [wire]
        with pytest.raises(AssertionError, match="selection is empty"):
            write_bits(tmp_path, spec, text)
    spec.anywhere = ["dut.counter.count"]
    write_bits(tmp_path, spec, text)


def test_report_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "REPORT", tmp_path / "formal.json")
    counter = book(CounterSpec, "caught")
    counter.save()
    other = Ledger()
    other.enter([Result("other", "x", "unbounded", None, 1.5, "proven")])
    other.save()
    report = current_fields("formal", json.loads((tmp_path / "formal.json").read_text()))
    assert [entry["name"] for entry in report["specifications"]] == ["test_counter", "other"]
    assert report["totals"] == {"checks": 2, "covers": 1, "faulty": 1,
                                "seconds": round(sum(r.seconds for r in counter.results) + 1.5, 1)}
    entry = report["specifications"][0]
    assert (entry["bound"], entry["proven"], report["margin"]) == (CounterSpec.bound, "bounded", MARGIN)
    assert entry["covers"] == [{"cover": "it comes to its end", "cycle": 12}]
    assert entry["faulty"][0]["check"] == "it never goes beyond 12"
    assert entry["faulty"][0]["changes"] == [list(change) for change in BEYOND]


@pytest.mark.parametrize(("spec", "names"), QUICK, ids=[spec.name for spec, _ in QUICK])
def test_block_meets_its_specification(spec, names):
    results = list(prove(spec(), only=names))
    assert {result.property for result in results} == set(names)
    assert not [result for result in results if not result.good]


@pytest.mark.parametrize("check", ["no unconsumed entry is overwritten", "every entry is written once, in order",
                                   "no deadlock: space in the ring is used within 4 cycles"])
def test_faulty_ring_writer_is_caught(check):
    faulty = next(faulty for faulty in faulty_copies("ring_writer") if faulty.check == check)
    assert refute(faulty.spec(RingWriterSpec), faulty.check).result == "caught"


def test_induction_over_a_faulty_copy_fails():
    name = "no piece crosses a multiple of the size"
    faulty = next(faulty for faulty in faulty_copies("splitter") if faulty.check == name)
    assert [result.result for result in prove(faulty.spec(SplitterSpec), only=[name])] == ["failed"]


def test_mutation_must_change_something():
    with pytest.raises(ValueError, match="holds 0 times"):
        mutant(RingWriterSpec.block, ("no such text", ""))


def test_every_faulty_copy_applies():
    for name, spec in specifications().items():
        for faulty in faulty_copies(name):
            assert mutant(faulty.of or spec.block, *faulty.changes).mutated_text


@pytest.mark.parametrize("name", specifications())
def test_every_specification_finds_its_internal_signals(name, tmp_path):
    spec = specifications()[name]()
    write_bits(tmp_path, spec, spec.convert()[0])
    assert (tmp_path / "bits.il").exists()


def test_every_check_has_a_unique_name_and_a_faulty_copy_and_every_specification_a_cover():
    assert len(specifications()) >= len(MODULES)
    for name, spec in specifications().items():
        assert issubclass(spec, Spec)
        properties = spec().properties()
        checks = {p.name for p in properties if p.kind != "cover"}
        assert checks == {faulty.check for faulty in faulty_copies(name)}, name
        assert any(p.kind == "cover" for p in properties), name
        assert len({p.name for p in properties}) == len(properties), name
