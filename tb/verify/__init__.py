"""Engineering tools: benchmarks, proofs, mutants, soak, fuzzing, calibration, conformance, interoperability, documents."""
