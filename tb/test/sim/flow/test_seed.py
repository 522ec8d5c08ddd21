"""Tests of the source of random tests' seeds."""

from weft.tb.sim.flow.seed import drawn_seed


def test_given_seed_is_used_and_the_first_of_several(monkeypatch):
    monkeypatch.setenv("WEFT_SEED", "77,78")
    assert drawn_seed() == drawn_seed("other") == 77


def test_seeds_are_random_by_default(monkeypatch):
    monkeypatch.delenv("WEFT_SEED", raising=False)
    monkeypatch.delenv("WEFT_DRAW", raising=False)
    seeds = {drawn_seed() for _ in range(8)}
    assert len(seeds) > 1 and all(0 <= seed < 1 << 31 for seed in seeds)


def test_derived_seed_depends_on_tree_and_test(monkeypatch):
    monkeypatch.delenv("WEFT_SEED", raising=False)
    drawn = {}
    for tree in ("a", "b"):
        monkeypatch.setenv("WEFT_DRAW", tree)
        for test in ("x (setup)", "y (call)"):
            monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
            drawn[tree, test] = drawn_seed("name")
            assert drawn[tree, test] == drawn_seed("name") != drawn_seed("other")
    assert len(set(drawn.values())) == 4
    monkeypatch.setenv("WEFT_DRAW", "a")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "x (call)")
    assert drawn_seed("name") == drawn["a", "x (setup)"]
