"""The checker's enclosures hold what is found by adding up all outputs, and are about as narrow as what they prove."""

from __future__ import annotations

import pytest

pytest.importorskip("flint", reason="certificates are checked with python-flint")

from accounting import verify
from benchmarks.claims import CASES, claims


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
@pytest.mark.parametrize("kind", CASES)
def test_what_is_true_of_all_outputs_is_accepted_and_what_is_a_little_false_refused(kind: str) -> None:
    judged = [(claim, bool(verify(claim.stored))) for claim in claims(kind)]
    assert [claim for claim, accepted in judged if accepted != claim.true] == []
    assert {claim.true for claim, _ in judged} == {True, False}
