"""One notion of privacy per file: what a description costs by it, and ε and δ from that.

* ``pure``: the largest loss. ``zcdp``: ρ. ``rdp``: the Rényi curve. ``gdp``: μ.
* ``conversions``: from each of these to (ε, δ) and back, exactly; and from a curve at its best order.
* ``perturbed_minimum``: the Rényi curve of objective perturbation.
"""
