"""The table of the guide holds. (Its examples run in tests/test_documents.py.)"""

import re
from pathlib import Path

import pytest

from accounting import Budget, Gaussian, calibrate
from dpkit.shuffle import VectorSum

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "how-the-shuffle-model-works.md"


ROWS = re.findall(
    r"^\| \((.*?), (.*?)\), (\d+), (.*?) \| (.*?) \| (.*?) \| (.*?) \| (\d+) \+ (\d+) \|$",
    GUIDE.read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_noise_holds(row):
    epsilon, delta, D, users = float(row[0]), float(row[1]), int(row[2]), int(float(row[3].replace("10⁶", "1e6")))
    noise, gaussian, paper = map(float, row[4:7])
    budget = Budget(epsilon, delta)
    sums = VectorSum(D, users, 1.0, budget=budget)
    assert (round(sums.noise_std, 2), round(2 * calibrate(Gaussian, budget), 2)) == (noise, gaussian)
    assert VectorSum(D, users, 1.0, budget=budget, analysis="paper").noise_std == pytest.approx(paper, rel=1e-3)
    assert (sums.protocol.resolution, sums.protocol.noise_bits) == (int(row[7]), int(row[8]))


def test_the_table_is_there():
    assert len(ROWS) == 3


def test_the_threat_model_names_a_section_that_is_there():
    assert "## What a malicious device can do at most" in GUIDE.read_text(encoding="utf-8")
    threats = (GUIDE.parent / "threat-model.md").read_text(encoding="utf-8")
    assert "how-the-shuffle-model-works.md#what-a-malicious-device-can-do-at-most" in threats
