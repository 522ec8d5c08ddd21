"""Engineering tools: benchmarks, proofs, mutants, soak, fuzzing, calibration, conformance, documents."""
