"""Benchmarks: the table of combinations of values, and ratios to a baseline; imports `analysis`.

`capacity`, which refuses more workers than devices, alone imports `db`."""
