"""The tables by themselves: what is erased, and that it does not matter in how many parts."""

import numpy as np
import pytest
from serving import configured

from dpbandits.serve.store import Choice, Store

ROWS = "SELECT number, arm IS NULL, person IS NULL, rewarded FROM decisions ORDER BY number"


@pytest.mark.parametrize("most", [3, 100])
def test_what_is_erased_in_parts_is_what_is_erased_at_once(tmp_path, storage, most):
    """By the definition: closed ones go, all before ``expired``, and of the others what they were made from."""
    rng = np.random.default_rng(most)
    (tmp_path / "a").mkdir()
    store = Store(configured(tmp_path / "a", storage=storage()).database)
    told = set()
    for upto, expired in [(0, 0), (12, 0), (12, 5), (30, 9), (41, 38)]:
        with store.writing():
            ids = store.decide([Choice(0, None, np.ones(2), "ann")] * 10, 0.0, None)
        with store.writing():
            some = [id for id in ids if rng.random() < 0.5]
            store.reward([(id, 1.0) for id in some], 0.0, None)
        told |= {int(id.partition("-")[0]) for id in some}
        rounds = 0
        more = True
        while more:
            with store.writing():
                more = store.forget(upto, expired, most)
            rounds += 1
            assert rounds < 200
        made = store.decided()
        left = [n for n in range(1, made + 1) if n > upto or (n > expired and n not in told)]
        wanted = [(n, n <= upto, n <= upto, n in told) for n in left]
        assert [tuple(map(int, row)) for row in store._db.execute(ROWS).fetchall()] == [
            tuple(map(int, row)) for row in wanted
        ]
    store.close()
