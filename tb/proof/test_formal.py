"""Proofs that take seconds, and broken copies that must not pass. All of them: ``make formal``."""

import pytest

from weft.tb.proof.engine import Spec, caught, mutant, prove
from weft.tb.proof.prefetch import LivingPrefetchSpec, PrefetchSpec
from weft.tb.proof.retire import RetireSpec
from weft.tb.proof.return_path import HoldSpec
from weft.tb.proof.ring_reader import RingReaderSpec
from weft.tb.proof.ring_writer import MUTANTS, RingWriterSpec
from weft.tb.proof.run import MODULES, _modules, specifications
from weft.tb.proof.window import WindowSpec
from weft.tb.proof.work_list import FewPlacesSpec

pytestmark = pytest.mark.formal

QUICK = [
    (RingWriterSpec, ["never overwrites an unconsumed entry", "each entry once, in order", "the phase turns every lap",
                      "an entry lies where its index says", "a full ring", "second lap", "a refused doorbell"]),
    (RingReaderSpec, ["a request lies inside the ring and one page", "requests follow each other",
                      "answers overtake each other"]),
    (RetireSpec, ["no room", "a report of a later order"]),
    (HoldSpec, ["reports of source 0 leave in order, each once", "what is offered stays",
                "a report waits for its packet", "a place is used a second time"]),
    (FewPlacesSpec, ["no due QP is missing once nothing is offered for a while", "an empty list owes nothing",
                     "a search finds a QP for which there was no place"]),
    (PrefetchSpec, ["a node lands", "a bad node breaks its list", "a doorbell of a former life"]),
    (LivingPrefetchSpec, ["one read for several nodes", "a destroy waits for a fetch"]),
    (WindowSpec, ["a duplicate", "a hole that later turns out late"]),
]


@pytest.mark.parametrize(("spec", "names"), QUICK, ids=[spec.name for spec, _ in QUICK])
def test_block_meets_its_specification(spec, names):
    results = list(prove(spec(), only=names))
    assert {result.property for result in results} == set(names)
    assert not [result for result in results if not result.good]


@pytest.mark.parametrize("changes", [changes for _, changes in MUTANTS])
def test_broken_ring_writer_is_caught(changes):
    assert caught(RingWriterSpec(mutant(RingWriterSpec.block, *changes))) is not None


def test_mutation_must_change_something():
    with pytest.raises(ValueError, match="holds 0 times"):
        mutant(RingWriterSpec.block, ("no such text", ""))


def test_every_mutation_still_applies():
    for spec, module in _modules().items():
        for of, changes, *only in module.MUTANTS:
            if of is spec:
                _, properties = spec(mutant(spec.block, *changes)).convert()
                assert set(only) <= {p.name for p in properties}


def test_every_specification_has_covers_and_mutations():
    assert len(specifications()) >= len(MODULES)
    for spec, module in _modules().items():
        _, properties = spec().convert()
        assert any(p.kind == "cover" for p in properties)
        assert any(p.kind != "cover" for p in properties)
        assert any(issubclass(spec, of) for of, *_ in module.MUTANTS)
        assert issubclass(spec, Spec)
