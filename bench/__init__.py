"""The measurements behind `docs/benchmarks.md`: `python -m bench --help`."""
