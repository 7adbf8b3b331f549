"""How long things take: ``python -m benchmarks``. How well they do: the scripts."""
