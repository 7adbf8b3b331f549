"""What was computed before is computed now: costs, seeded runs, saved states, ledgers, seeded outputs.

``tests/record/make.py`` wrote the record, and checks it by hand, to the last bit where asked. Numbers are compared to
nine digits, chosen arms and words exactly. The gate looks at a fixed part of each kind, the slow tests at everything.
"""

import pytest
from linear_algebra import as_recorded
from make import PARTS, compared, part_of, recorded

SHARES = 8


@pytest.fixture(autouse=True)
def runs_only_where_they_were_recorded(request):
    """Runs without noise follow the last digits of linear algebra."""
    if request.node.callspec.params.get("part") == "runs" and not as_recorded():
        pytest.skip("runs are recorded with the kernels of OpenBLAS for AVX2")


@pytest.mark.thorough
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("part", PARTS)
def test_part_of_the_record_holds(part, share):
    assert not compared(part, part_of(part).names(True)[share::SHARES], gate=True)


@pytest.mark.parametrize("part", PARTS)
def test_all_that_is_recorded_is_looked_at(part):
    assert part_of(part).names(False) == list(recorded(part))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("part", PARTS)
def test_the_whole_record_holds(part, share):
    assert not compared(part, part_of(part).names(False)[share::SHARES], gate=False)
