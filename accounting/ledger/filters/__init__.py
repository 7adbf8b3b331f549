"""Privacy filters: what keeps a sequence of adaptively chosen releases inside its budget.

A filter adds up measures and refuses the release that would take them past what the budget allows. The next
release may depend on every output so far; what is measured may not, so a *rule* is fixed before anything
leaves. Per measure, the whole sequence meets (ε, δ) if always

=========  ===========================================  =======================================================
``pure``   Σ ε ≤ the largest ε₀ that meets (ε, δ)       Rogers, Roth, Ullman & Vadhan 2016 (arXiv:1605.08294)
``gdp``    Σ μ² ≤ the largest μ² that meets (ε, δ)      Smith & Thakurta 2022 (arXiv:2210.17520)
``zcdp``   Σ ρ ≤ the largest ρ that meets (ε, δ)        Whitehouse et al. 2023 (arXiv:2203.05481)
``rdp``    Σ ε_α ≤ what meets (ε, δ), at one order α    Feldman & Zrnic 2021 (arXiv:2008.11193)
``mixed``  one of these holds: gdp with charges by how  the lemma below,
           much is left for two shares of δ, sixteen    ``reserve_costs``, ``level_charges``,
           Rényi orders for the rest, pure DP           ``renyi_mixture``
``plan``   the releases are among those of a plan       composition of a list fixed in advance, see below
=========  ===========================================  =======================================================

An order α read off afterwards, or the smallest of several accountants, is *not* covered: which one ends up the
smallest depends on the outputs. Several filters may be asked together if each has its own share of δ:

*Lemma.* Let filter j keep a sequence (ε, δ_j)-DP, and let the costs that it adds be nonnegative. Admit a release while
at least one filter holds for everything so far. The sequence is (ε, Σδ_j)-DP. Proof: sort the final transcripts
into A_1, A_2, … by the first filter that holds at their end. A filter that holds at the end held all the way, so on
A_j the sequence is that of filter j alone, and P(S) = Σ P(S∩A_j) ≤ Σ (e^ε Q(S∩A_j) + δ_j) = e^ε Q(S) + Σδ_j. ∎

*Pure DP rides along.* Σ ε ≤ ε needs no δ at all, so with gdp, zcdp, rdp or mixed a release is also admitted while
the plain sum of every ε stays within the budget.

*What is fixed when* under ``mixed``, and how full a ledger gets: ``default_rule``.

*Order.* Sums of measures do not depend on the order of the releases. Charges by how much is left do, a little: what has
skewed or large losses is cheaper early. So of two orders of the same releases one may fit and the other not.

*Releases that may fail* (``ApproxDP``) may spend ``failure_delta`` of δ: Π(1 − δᵢ) ≥ 1 − ``failure_delta``, and the
measures must meet (ε, δ′) with δ′ = (δ − f)/(1 − f). Proof: pad each transcript with one more failure so that
every one survives with probability 1 − f exactly; the survivors' part of P is then (1 − f)·P′ with P′ the filtered
composition of the rest, and P(S) ≤ f + (1 − f)(e^ε Q′(S) + δ′) ≤ e^ε Q(S) + δ.

*A plan* is a list of releases that meets the budget under any accountant, the privacy loss distribution included.
Whatever order they are taken in, and wherever the sequence stops, it is dominated by the whole list: composition
is commutative, and so by induction on what is left of the list.
A first release may come with the whole that it begins (``Ledger.spend(plan=)``). Then the filter is the one that suits
the whole as if that were the first release, and where it leaves next to nothing of ε, the whole is the plan. This looks
at nothing but what was asked for first, either.

*Scopes.* A unit lies in one innermost scope, and meets what was released there, around it and on the whole data
(``scopes``). All of the above is asked for every unit that a release meets.

*Untouched scopes.* Where nothing was released in a scope, in a part of it or around it, no output depends on its
units yet. So a release there that the filter refuses, and that by itself meets the budget under any accountant, may
fix a plan of its own for the scope: for these units it is a rule fixed in advance, however it was chosen. (The ledger
as a whole, priced at once, must still meet the budget with it, so that an audit finds what was promised.) From then
on they follow that plan and the others the filter, and what is released around the scope must suit both. (The epochs
of a policy, each shuffled by another number of users, are such scopes.)

Where to read: ``rule`` is what is fixed; ``choice`` how it follows from budget and first release, ``default_rule`` the
one of ``mixed``; ``additive_filter`` and ``plan_filter`` add up, per unit by ``scopes``, and admit; ``measure_sums``
are the sums that the former may ask. What they add up for ``mixed``: ``reserve_costs`` (a release next to Gaussian
noise that is still to come) from ``smoothed_losses`` (its left side), ``level_charges`` (the reserve falls as the
budget is spent), ``renyi_mixture`` (sixteen orders), ``copies_of_first`` (more like the first release, by any
accountant).
"""
