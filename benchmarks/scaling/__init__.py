"""What training on several processes costs, as formulas, as measured here and as simulated to 10,000 ranks: `python -m benchmarks.scaling`."""
