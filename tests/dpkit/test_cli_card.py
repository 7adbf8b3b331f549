"""``dpkit ledger card`` and ``registry``: what a ledger claims, and a record for the public registry."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from commands import run

from accounting import ZCDP, ApproxDP, Budget, Gaussian, Ledger, PureDP, attacker, epsilon, gdp

SCHEMA = json.loads((Path(__file__).parent / "deployments-schema.json").read_text(encoding="utf-8"))


def made(place, budget, *releases):
    with Ledger.create(place, budget) as ledger:
        for release in releases:
            ledger.spend(release, label="a <b>release</b>")
    return place


@pytest.mark.parametrize("adjacency", ["replace", "add_remove", "zero_out"])
def test_a_card_states_the_whole_total_and_no_less(tmp_path, adjacency):
    parts = 3 * Gaussian(9.0, adjacency=adjacency), PureDP(0.1, adjacency=adjacency)
    place = made(tmp_path / "l.ledger", Budget(3.0, 1e-6, unit="person", adjacency=adjacency), *parts)
    card = json.loads(run("ledger", "card", place, "--json", "--prior", 0.1))
    total = parts[0] + parts[1]
    reached = attacker(total)
    assert card["spent"]["epsilon"] == pytest.approx(epsilon(total, 1e-6), rel=1e-9)
    assert card["spent"]["mu"] == pytest.approx(gdp(total), rel=1e-12)
    assert card["attack"]["advantage"] == pytest.approx(reached.advantage, rel=1e-9)
    assert (card["unit"], card["adjacency"], card["attack"]["prior"]) == ("person", adjacency, 0.1)
    assert card["releases"] == {"Gaussian": 3, "PureDP": 1}
    words = run("ledger", "card", place)
    most = float(words.split("at most ")[1].split()[0].strip(","))
    true = 100 * float(reached.true_positives(0.01))
    assert true <= most <= true + 0.1  # rounded up
    assert "one person" in words
    assert "is for one" not in words


def test_a_card_of_rows_says_that_a_person_may_have_several(tmp_path):
    place = made(tmp_path / "l.ledger", Budget(1.0, 0.0), PureDP(0.5))
    assert "A person who contributes more than one row" in run("ledger", "card", place)


def test_a_card_says_that_scopes_are_counted_for_themselves(tmp_path):
    place = tmp_path / "l.ledger"
    with Ledger.create(place, Budget(1.0, 0.0, unit="person")) as ledger:
        for scope in ("north", "south"):
            assert "several of the" not in run("ledger", "card", place)
            ledger.spend(PureDP(0.1), scope=scope)
    assert "A person whose data are in several of the 2 scopes" in run("ledger", "card", place)


def test_a_card_without_a_finite_epsilon_or_without_releases_claims_nothing(tmp_path):
    assert "nothing was revealed" in run("ledger", "card", made(tmp_path / "a.ledger", Budget(1.0, 0.0)))
    place = made(tmp_path / "b.ledger", None, ZCDP(0.1), ApproxDP(0.1, 1e-3))
    card = json.loads(run("ledger", "card", place, "--json", "--delta", 1e-9))
    assert card["spent"]["epsilon"] is None
    assert card["spent"]["mu"] is None
    assert "must have a budget" in run("ledger", "registry", place, status=2)


def test_a_simulation_protects_nobody(tmp_path):
    place = tmp_path / "l.ledger"
    with Ledger.create(place, Budget(1.0, 0.0)) as ledger:
        ledger.spend(PureDP(0.1), label="x", simulation=True)
    assert "protects nobody" in run("ledger", "card", place)
    assert "simulation" in run("ledger", "registry", place, status=2)


def test_the_page_loads_nothing_and_runs_nothing(tmp_path):
    place = made(tmp_path / "<script>.ledger", Budget(3.0, 1e-6), Gaussian(5.0))
    page = tmp_path / "card.html"
    assert "Card written" in run("ledger", "card", place, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert "http" not in text.split("</style>")[1]
    assert "ε = " in text


def validated(text):
    record = yaml.safe_load(text)
    jsonschema_rs.validator_for(SCHEMA).validate(record)
    return record


def test_a_record_for_the_registry_fits_its_schema(tmp_path):
    place = made(tmp_path / "visits.ledger", Budget(3.0, 1e-6, unit="person"), Gaussian(9.0), PureDP(0.1))
    record = validated(run("ledger", "registry", place))
    loss = record["deployment"]["privacy_loss"]
    assert loss["privacy_unit"] == "person"
    assert loss["privacy_parameters"]["epsilon"] == pytest.approx(epsilon(Gaussian(9.0) + PureDP(0.1), 1e-6), rel=1e-9)
    assert loss["privacy_parameters"]["delta"] == 1e-6
    first = record["deployment"]["basic"]["publication_date"]  # of the first release
    about = tmp_path / "about.toml"
    about.write_text(run("ledger", "registry", "--template").replace('name = ""', 'name = "Visits"'), encoding="utf-8")
    record = validated(run("ledger", "registry", place, "--about", about))
    assert record["deployment"]["basic"]["name"] == "Visits"
    assert record["deployment"]["basic"]["publication_date"] == first
    assert record["url_slug"] == f"visits-{first[:4]}"
    # what the template leaves empty stays to be done
    assert record["deployment"]["basic"]["data_curators"] == ["TODO: who publishes"]
    assert record["deployment"]["administrative"]["registry_authors"] == ["TODO: who wrote this record"]
    about.write_text("[nothing]\na = 1\n", encoding="utf-8")
    assert "sections of fields" in run("ledger", "registry", place, "--about", about, status=2)


def test_pure_privacy_has_no_delta_in_the_record(tmp_path):
    record = validated(run("ledger", "registry", made(tmp_path / "l.ledger", Budget(1.0, 0.0), PureDP(0.5))))
    assert record["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5}
