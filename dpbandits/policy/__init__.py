"""What every policy is: which file answers which question.

* What is a policy asked, and what does it answer? ``protocol``; a decision, and what a run cost: ``decision``.
* What is offered in a round, and is it valid? ``offers``, ``checks``; named arms that come and go: ``catalogue``.
* By what law was an arm chosen? ``choices``. Several arms in a round, with clicks by position: ``slates``.
* Which decisions wait for their rewards? ``open_decisions``. Choices that were made elsewhere: ``logs``.
* A private policy: ``private`` (one run of releases), made of ``parts``, after a ``schedule``, under a kind of
  ``trust``. What it has released, as a value that chooses anywhere: ``released``; how far it has come: ``progress``.
  A range of rewards that nobody can state: ``learned_range``. What is said when one is made: ``announced``.
* Keywords that policies share: ``options``, ``parameters``.
"""
