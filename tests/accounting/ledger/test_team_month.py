"""The example of a month: processes, quotas, a restore, an overspend, and four reports that agree with the ledger."""

import csv
import io
import json
from pathlib import Path

import pytest

from accounting import Ledger

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.thorough
@pytest.mark.parametrize(("spends", "processes"), [(12, 1), pytest.param(5000, 4, marks=pytest.mark.slow)])
def test_a_month_of_three_teams(tmp_path, monkeypatch, spends, processes):
    """In small with one process at a time, since that several agree is tested where they race."""
    pytest.importorskip("typer")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import team_month

    facts = team_month.month(tmp_path, spends=spends, processes=processes)
    released, refused = (facts["outcomes"].get(outcome, 0) for outcome in ("released", "refused"))
    # the house's table, two after the backup, and everything that the processes were allowed
    assert facts["rows"] == 3 + released
    assert (released, refused) == (spends, 0) if spends < 100 else released + refused == spends
    assert "'one table too many' asks for" in facts["refusal"]

    report = json.loads((tmp_path / "month.json").read_text(encoding="utf-8"))
    page, text = ((tmp_path / f"month.{kind}").read_text(encoding="utf-8") for kind in ("html", "txt"))
    scopes = {one["scope"]: one for one in report["scopes"]}
    assert (report["rows"], report["within_budget"], report["problems"]) == (facts["rows"], True, [])
    assert "The recorded releases are within the budget." in text
    with Ledger.open(tmp_path / "month.ledger") as ledger:
        rows = ledger.rows()
        assert report["head"] == ledger.head
        assert {row.scope for row in rows if row.scope} <= {team_month.scope_of(i) for i in range(200)}
        assert sum("recorded again" in row.label for row in rows) == 2
        for team, quota in team_month.QUOTAS.items():
            assert scopes[team]["rows"] == len(ledger.rows(scope=team))
            assert scopes[team]["quota"]["epsilon"] == quota.epsilon
            assert 0 < scopes[team]["spent"] <= ledger.quota_booked(team) == facts["quotas"][team] <= quota.epsilon
            for shown in (team, f"{scopes[team]['spent']:.6g}"):
                assert shown in page
                assert shown in text
    listed = list(csv.DictReader(io.StringIO((tmp_path / "month.csv").read_text(encoding="utf-8"))))
    assert [line["entry"] for line in listed].count("spend") == facts["rows"]
    assert [line["entry"] for line in listed].count("quota") == len(team_month.QUOTAS)
    assert sum("report of" in line["label"] for line in listed) == released
    assert "Scopes and quotas" in page
    assert "one table too many" not in page
