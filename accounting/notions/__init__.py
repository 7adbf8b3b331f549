"""One notion of privacy per file: what a description costs by it, and ε and δ from that.

* ``pure``: the largest loss. ``zcdp``: ρ. ``rdp``: the Rényi curve. ``gdp``: μ.
* ``perturbed_minimum``: the Rényi curve of objective perturbation.

From each of these to (ε, δ) and back: :mod:`accounting.conversions`.
"""
