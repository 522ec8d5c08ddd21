"""Programs that a user runs: the main job, served hosts, performance tests, sweeps and their report, device tools."""
