"""Backlight against PyTorch, measured side by side: `python -m benchmarks`."""
