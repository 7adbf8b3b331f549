"""Certificates: the checker accepts what is true, and refuses what is not; it shares nothing with the accountants."""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint", reason="certificates are checked with python-flint")

from accounting import (
    ZCDP,
    ApproxDP,
    Budget,
    Certificate,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    Ledger,
    LocalShuffled,
    LossPair,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomAllocated,
    RandomizedResponse,
    Release,
    UnaryEncoding,
    UnsupportedRelease,
    bound,
    calibrate,
    certify,
    checker,
    parallel,
    verify,
)
from accounting import certificates as certificates_of
from benchmarks.certificates import CHECKER, certificates, code_mutants, false_values, worthless_proofs
from benchmarks.claims import CASES, claims

pytestmark = pytest.mark.filterwarnings("ignore:ε is only known:UserWarning")
DP_SGD = 200 * PoissonSubsampled(Gaussian(1.1), 0.01)
QUICK: list[tuple[Release, float]] = [
    (Gaussian(1.0), 1e-6),
    (10 * Gaussian(5.0) + 5 * Laplace(9.0), 1e-6),
    (2 * Laplace(24.76), 1e-6),
    (17 * Laplace(2.023), 1e-10),
    (30 * RandomizedResponse(0.3, 5), 1e-6),
    (PureDP(0.1) + PureDP(0.2) + Laplace(3.0), 0.0),
    (PoissonSubsampled(Gaussian(1.0), 0.01), 1e-8),
    (NoisyMax(1.0), 1e-6),
    (3 * ZCDP(0.2), 1e-6),
    (FixedSizeSubsampled(Gaussian(1.0), 10, 1000), 1e-6),
]
# Unlike parts that may fail, a δ below 1e-12, a δ so large that ε is 0 or next to it.
RARE: list[Any] = [
    (ApproxDP(0.01, 0.001) + 5 * PureDP(0.01), 0.01),
    (ApproxDP(0.1571, 2e-13) + UnaryEncoding(0.5434, 9), 2e-12),
    (ApproxDP(0.9382, 2e-10) + 33 * DiscreteLaplace(2.191), 0.3),
    (3 * ApproxDP(0.0, 1e-3) + PureDP(0.3), 0.01),
    (3 * ApproxDP(0.0, 1e-3) + 2 * Laplace(50.0), 0.1),
    pytest.param(3 * PoissonSubsampled(Gaussian(0.9167), 0.001229), 1.8e-14, marks=pytest.mark.thorough),
    (PoissonSubsampled(Laplace(2.3375216198608983), 0.32043825271319243), 7.406640895110302e-12),
    (2 * Laplace(8.0), 0.3),
    (10 * Gaussian(50.0) + 3 * Laplace(20.0), 0.1),
    pytest.param(20 * PoissonSubsampled(Gaussian(5.0), 0.01), 0.1, marks=pytest.mark.thorough),
    (5 * PoissonSubsampled(Laplace(5.0), 0.01), 0.1),
    pytest.param(5 * PoissonSubsampled(DiscreteGaussian(12.0, shift=1), 0.1), 0.1, marks=pytest.mark.thorough),
    pytest.param(2 * PoissonSubsampled(DiscreteGaussian(12.0, shift=1), 0.1), 1e-3, marks=pytest.mark.slow),
    (ZCDP(0.001), 0.3),
    (Gaussian(2.0) + PureDP(0.0), 1e-3),
    (Laplace(0.3) + 5 * PureDP(0.0), 1e-3),
    pytest.param(LocalShuffled(12.0, 2000), 0.1, marks=pytest.mark.thorough),
    (LocalShuffled(5.0, 2), 0.05),
]


def test_the_checker_imports_nothing_of_the_package() -> None:
    tree = ast.parse(CHECKER.read_text(encoding="utf-8"))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    levels = {node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} <= {"__future__", *sys.stdlib_module_names, "flint"}
    assert levels == {0}
    assert CHECKER.read_text(encoding="utf-8").count("\n") <= 1000


def test_it_runs_alone(tmp_path: Path) -> None:
    alone, certificate = tmp_path / "alone.py", tmp_path / "c.json"
    alone.write_bytes(CHECKER.read_bytes())
    certify(10 * Gaussian(5.0), 1e-6).save(certificate)
    run = [sys.executable, "-I", str(alone), str(certificate)]
    found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, encoding="utf-8")
    assert (found.returncode, found.stdout) == (0, "accepted: both ends are proved\n")


@pytest.mark.parametrize(("release", "delta"), QUICK, ids=repr)
def test_what_is_true_is_accepted_and_what_is_false_refused(release: Release, delta: float) -> None:
    certificate = certify(release, delta)
    assert verify(certificate), verify(certificate).reason
    assert Certificate.from_json(certificate.to_json()) == certificate
    mutants = [*false_values(certificate), *worthless_proofs(certificate, random.Random(1))]
    assert [mutant for mutant in mutants if verify(mutant)] == []
    lower, upper = bound(release, delta)
    assert 0.93 * lower <= (certificate.lower or 0.0) <= lower
    assert upper <= certificate.upper <= upper * (1 + 6e-6)


@pytest.mark.parametrize(("release", "delta"), RARE, ids=repr)
def test_what_is_certified_is_accepted(release: Release, delta: float) -> None:
    certificate = certify(release, delta)
    assert bound(release, delta).certified or isinstance(release, ZCDP)
    assert verify(certificate), verify(certificate).reason
    assert [mutant for mutant in false_values(certificate) if verify(mutant)] == []


def test_a_certificate_that_is_refused_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_MOST_WORK", 10.0)
    with pytest.raises(UnsupportedRelease, match=r"no proof was found of what .* costs at delta=1e-06: it takes more"):
        certify(20 * Gaussian(9.0) + Laplace(9.0), 1e-6)
    monkeypatch.setattr(certificates_of, "find_spec", lambda name: None)  # as where python-flint is missing
    assert certify(20 * Gaussian(9.0) + Laplace(9.0), 1e-6).upper > 0


def test_the_enclosures_hold_the_reference_values() -> None:
    """δ of one Gaussian release by 50 digits (Balle & Wang 2018, Theorem 8), at both ends."""
    from mpmath import erfc, exp, mp, mpf, sqrt

    mp.dps = 50
    certificate = certify(Gaussian(1.0), 1e-6)
    verdict = verify(certificate)
    for end, (low, high) in ((certificate.upper, verdict.at_upper), (certificate.lower, verdict.at_lower)):
        e = mpf(end)
        delta = erfc((e - 0.5) / sqrt(2)) / 2 - exp(e) * erfc((e + mpf(0.5)) / sqrt(2)) / 2
        assert low <= delta <= high


def test_a_contour_and_a_closed_form_agree() -> None:
    """The integral of Gaussian noise that is written as two parts is that of its closed form."""
    from flint import arb, ctx

    with ctx.workprec(128):
        laws: list[tuple[checker.Law, int]] = [
            (checker.GaussianLaw(arb(1) / 50), 1),
            (checker.GaussianLaw(arb(1) / 25), 2),
        ]
        line = {"tilt": 20.0, "step": 1.0, "width": 1e-4, "beyond": 60.0}
        ((below, above),) = checker._on_contour(laws, line, [arb(1.5)], arb(1e-6))
        exact = checker.GaussianLaw(arb(1) / 10).delta(arb(1.5))
    assert below <= exact <= above
    assert above - below < exact * 1e-4


def test_unknown_certificates_are_refused() -> None:
    stored = json.loads(certify(10 * Laplace(5.0), 1e-6).to_json())
    assert verify(stored)
    for change in (
        {"format": "other"},
        {"version": 2},
        {"more": 1},
        {"upper": float("nan")},
        {"upper": None},
        {"delta": -1e-6},
        {"delta": "1e-6"},
        {"lower": 5.0},
        {"proof": None},
        {"proof": {"present": []}},
        {"release": {"type": "Outside"}},
        {"release": {"type": "Laplace", "noise_multiplier": 5.0, "shift": 2}},
        {"release": {"type": "Laplace", "noise_multiplier": -5.0}},
        {"release": {"type": "Composed", "parts": [[{"type": "Laplace", "noise_multiplier": 5.0}, True]]}},
        {"release": {"type": "Composed", "parts": []}},  # which costs nothing, and not so much
        {"release": {"type": "Parallel", "branches": []}},
    ):
        assert not verify({**stored, **change}), change
    other = {"type": "Laplace", "noise_multiplier": 5.0, "adjacency": "replace"}
    mixed = [[other, 5], [{**other, "adjacency": "add_remove"}, 5]]
    assert "neighbours" in verify({**stored, "release": {"type": "Composed", "parts": mixed}}).reason


def _claim(release: Any, delta: float, upper: float, lower: float | None = None, **proof: Any) -> dict[str, Any]:
    names = ("format", "version", "release", "delta", "upper", "lower", "proof")
    return dict(zip(names, ("dp-certificate", 1, release, delta, upper, lower, proof), strict=True))


@pytest.mark.parametrize(("failing", "delta"), [(0.5, 0.5), (1e-6, 1e-6), (1.0, 1.0)])
def test_a_delta_that_stays_the_same_proves_no_lower_end(failing: float, delta: float) -> None:
    """(1, δ)-DP is (ε, δ)-DP for smaller ε than 1000, though its δ at 1000 is δ."""
    assert not verify(_claim({"type": "ApproxDP", "epsilon": 1.0, "delta": failing}, delta, 1000.0, 1000.0))


def test_a_lower_end_at_the_failure_is_certified() -> None:
    certificate = certify(ApproxDP(1.0, 1e-6), 1e-6)
    assert certificate.lower == pytest.approx(1.0, rel=1e-8)
    assert verify(certificate)


@pytest.mark.parametrize(
    ("rate", "epsilon", "count", "x", "delta"),
    [
        (0.6568652077943228, 0.10559129635094641, 27, 1.4908400103883257, 7.204319616650093e-07),
        (0.8026742978527006, 0.17264097261692285, 26, 2.8327405057001247, 5.198725926729294e-06),
    ],
)
def test_many_samples_of_two_losses_without_the_unit(
    rate: float, epsilon: float, count: int, x: float, delta: float
) -> None:
    """The losses of samples that lack the unit fall, and δ is larger on this side."""
    part = {"type": "PoissonSubsampled", "rate": rate, "release": {"type": "PureDP", "epsilon": epsilon}}
    release = {"type": "Composed", "parts": [[part, count]]}
    assert not verify(_claim(release, 0.99 * delta, x))
    assert verify(_claim(release, delta * (1 + 1e-9), x))


@pytest.mark.thorough
def test_witnesses_of_shuffled_messages_have_categories() -> None:
    release, line = (
        {"type": "LocalShuffled", "epsilon": 1.0, "users": 1},
        {"tilt": 5.0, "step": 0.05, "width": 1e-3, "beyond": 30.0},
    )
    for categories, accepted in ((2, True), (1, False), (4, False), (True, False)):
        below = [{"others": "first", "categories": categories, **line}]
        claim = _claim(release, 0.287, 1.0, 0.5, present=[{"above": line, "below": below}])
        assert bool(verify(claim)) == accepted, categories


@pytest.mark.parametrize(
    ("epsilon", "users", "delta"), [pytest.param(1.0, 6, 0.02, marks=pytest.mark.slow), (1.0, 14, 0.02), (0.3, 99, 0.1)]
)
def test_messages_of_few_and_of_many_users_are_proved_from_both_sides(epsilon: float, users: int, delta: float) -> None:
    assert verify(certify(LocalShuffled(epsilon, users=users), delta))


def test_samples_are_of_neighbours_that_they_are_priced_for() -> None:
    gaussian = {"type": "Gaussian", "noise_multiplier": 1.0}
    poisson = {"type": "PoissonSubsampled", "release": gaussian, "rate": 0.01}
    batch = {"type": "FixedSizeSubsampled", "release": gaussian, "batch_size": 10, "records": 1000}
    for release, stated in ((poisson, "add_remove"), (batch, "replace")):
        for adjacency in (None, "replace", "add_remove", "zero_out"):
            known = adjacency in (None, stated)
            other = {**gaussian, "adjacency": adjacency}
            for one in ({**release, "adjacency": adjacency}, {**release, "release": other}):
                assert bool(verify(_claim(one, 1e-6, 1.0))) == known, one
            mixed = {"type": "Composed", "parts": [[release, 1]], "adjacency": adjacency}
            assert bool(verify(_claim(mixed, 1e-6, 1.0))) == known, mixed
    shuffled = {"type": "LocalShuffled", "epsilon": 1.0, "users": 10}
    assert verify(_claim(shuffled, 1e-6, 1.0))
    assert not verify(_claim({**shuffled, "adjacency": "add_remove"}, 1e-6, 1.0))


@pytest.mark.parametrize(
    ("release", "proof"),
    [
        ({"type": "DiscreteLaplace", "noise_multiplier": 1.0, "shift": 10**9}, None),
        ({"type": "Composed", "parts": [[{"type": "ApproxDP", "epsilon": 1.0, "delta": 1}, 2]]}, None),
        (None, {"tilt": 1e12, "beyond": 1e13}),
        (None, {"beyond": 1e12}),
        (None, {"step": 1e-300}),
    ],
)
def test_what_would_take_for_ever_is_refused(release: dict[str, object] | None, proof: dict[str, float] | None) -> None:
    line = {"tilt": 5.0, "step": 1.0, "width": 1e-3, "beyond": 30.0, **(proof or {})}
    sample = {"type": "PoissonSubsampled", "rate": 0.01, "release": {"type": "Gaussian", "noise_multiplier": 1.0}}
    given = release or {"type": "Composed", "parts": [[sample, 200]]}
    assert not verify(_claim(given, 1e-6, 0.5, present=[line], absent=[line]))


@pytest.mark.thorough
def test_the_work_of_all_branches_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of the same branch would take minutes; the limit is on the sum, and one branch is far below it."""
    stored = json.loads(certify(DP_SGD, 1e-6).to_json())
    assert verify(stored)
    spent = checker._MOST_WORK - checker._LEFT.get()
    lines = {side: 2_000 * lines for side, lines in stored["proof"].items()}
    many = {**stored, "release": {"type": "Parallel", "branches": 2_000 * [stored["release"]]}, "proof": lines}
    assert 0 < 100 * spent < checker._MOST_WORK < 2_000 * spent
    monkeypatch.setattr(checker, "_MOST_WORK", 2.5 * spent)
    assert verify(stored)
    assert "more work" in verify(many).reason


def test_a_field_that_is_written_twice_is_refused(tmp_path: Path) -> None:
    text = certify(Gaussian(5.0), 1e-6).to_json().replace('"delta"', '"upper": 0.1, "delta"')
    (tmp_path / "c.json").write_text(text, encoding="utf-8")
    run = [sys.executable, "-I", str(CHECKER), str(tmp_path / "c.json")]
    assert subprocess.run(run, capture_output=True, check=False).returncode == 1
    with pytest.raises(ValueError, match="twice"):
        Certificate.from_json(text)
    with pytest.raises(ValueError, match="no field 'more'"):
        Certificate.from_json(text.replace('"upper": 0.1,', '"more": 1,'))


def test_a_claim_of_a_budget() -> None:
    z = calibrate(lambda z: 20 * Gaussian(z), Budget(1.0, 1e-6))
    certificate = certify(20 * Gaussian(z), 1e-6, epsilon=1.0)
    assert verify(certificate)
    assert not verify(replace(certificate, release=20 * Gaussian(0.999 * z)))
    with pytest.raises(ValueError, match="epsilon must be at least"):
        certify(20 * Gaussian(z), 1e-6, epsilon=0.99)


class Choice(NoisyMax):
    """A release from outside, whose price is what its pair says."""

    def pair(self) -> LossPair:
        return Laplace(100.0).pair()


@pytest.mark.parametrize(
    "release",
    [
        20 * NoisyMax(0.1, "laplace"),
        RandomAllocated(Gaussian(1.0), 10),
        ZCDP(0.1) + Gaussian(9.0),
        Choice(1.0),
        3 * PoissonSubsampled(ApproxDP(0.4, 1e-16), 0.01),
        parallel(2 * ZCDP(0.1), Gaussian(9.0)),
        parallel(LocalShuffled(1.0, 100), Gaussian(9.0)),
    ],
)
def test_what_is_numerical_has_no_certificate(release: Release) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not bound(release, 1e-6).certified
    with pytest.raises(UnsupportedRelease, match="numerical"):
        certify(release, 1e-6)


def test_of_zcdp_the_lower_end_is_numerical() -> None:
    bracket, certificate = bound(ZCDP(0.1), 1e-6), certify(ZCDP(0.1), 1e-6)
    assert not bracket.certified
    assert verify(certificate)
    assert certificate.upper == pytest.approx(bracket.upper, rel=2e-6)
    assert certificate.lower is not None
    assert certificate.lower < 0.95 * bracket.lower


@pytest.mark.thorough
def test_an_accountant_that_claims_too_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of the accountants' code: a shift, noise or a tail that is a little off in what ε is found from."""
    from accounting.compose import pld
    from accounting.loss import laplace, sampled

    release = 50 * PoissonSubsampled(Gaussian(2.0), 0.02)
    assert verify(certify(release, 1e-6))
    masses = sampled.SubsampledPair.masses
    monkeypatch.setattr(sampled.SubsampledPair, "masses", lambda self, edges: masses(self, edges * 1.003))
    pld._profile.cache_clear()
    with pytest.raises(UnsupportedRelease, match="at the upper end δ is not proved"):
        certify(release, 1e-6)
    monkeypatch.undo()
    of_laplace = laplace.LaplacePair.masses
    monkeypatch.setattr(laplace.LaplacePair, "masses", lambda self, edges: of_laplace(self, edges * 1.003))
    pld._profile.cache_clear()
    with pytest.raises(UnsupportedRelease, match="at the upper end δ is not proved"):
        certify(30 * Laplace(9.0), 1e-6)
    monkeypatch.undo()
    pld._profile.cache_clear()


@pytest.mark.thorough
def test_private_training() -> None:
    certificate = certify(DP_SGD, 1e-6)
    assert verify(certificate)
    assert not verify(replace(certificate, lower=None, upper=(certificate.lower or 0.0) * (1 - 1e-4)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("release", "delta"),
    [
        # Chernoff's bound of the lower end is governed by losses that are rarer than floats
        (1795 * PoissonSubsampled(Gaussian(3.617), 0.004129), 1e-4),
        # at the last nodes the argument of a sample turns quickly
        (438 * PoissonSubsampled(Gaussian(1.571), 0.00132), 1e-8),
    ],
)
def test_rare_samples_with_much_noise_are_proved_from_both_sides(release: Release, delta: float) -> None:
    assert verify(certify(release, delta)).reason == "both ends are proved"


@pytest.mark.slow
def test_many_certificates_and_their_mutants() -> None:
    made = list(certificates(2, 200))
    assert [one.release for one in made if not verify(one)] == []
    draw = random.Random(2)
    quick = made[::2]
    mutants = [mutant for one in quick for mutant in (*false_values(one), *worthless_proofs(one, draw))]
    assert len(mutants) >= 400
    assert [mutant for mutant in mutants if verify(mutant)] == []


@pytest.mark.slow
def test_changes_of_the_checker_are_noticed() -> None:
    """By true and false claims, every second one: most others are of limits, and of how much work is done."""
    battery = [claim for kind in CASES for claim in claims(kind)]
    noticed = []
    for module in code_mutants(3, 30):
        try:
            noticed.append(any(bool(module.verify(claim.stored)) != claim.true for claim in battery))
        except Exception:
            noticed.append(True)
    assert sum(noticed) >= len(noticed) / 2


@pytest.mark.slow
def test_shuffled_messages_are_proved_from_both_sides() -> None:
    certificate = certify(LocalShuffled(RandomizedResponse(1.0, 3), users=500), 1e-5)
    assert verify(certificate)
    assert [mutant for mutant in false_values(certificate) if verify(mutant)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "delta"),
    [
        (18 * PoissonSubsampled(Gaussian(1.061), 0.001599), 1e-10),
        # the grid would have to be finer than there is work for
        (60 * PoissonSubsampled(Gaussian(0.7368), 0.001177), 1e-5),
    ],
)
def test_samples_that_hardly_ever_read_a_unit_are_proved_on_a_grid(release: Release, delta: float) -> None:
    """Their transform hardly decays: on a contour they would take more work than is spent."""
    certificate = certify(release, delta)
    assert "bottom" in certificate.proof["present"][0]
    assert verify(certificate).reason == "both ends are proved"


@pytest.mark.slow
def test_rare_samples_with_little_noise_and_a_small_delta_are_proved():
    """Their tilt is far from the noise: a limit on work must not refuse them."""
    assert verify(certify(410 * PoissonSubsampled(Gaussian(0.9237), 0.001091), 1e-8))


def test_what_is_no_certificate_is_told_apart(tmp_path: Path) -> None:
    """A description, a path, and a ledger's file, which are given in the place of one."""
    with pytest.raises(TypeError, match=r"certificate must be what certify makes.*, got Gaussian"):
        verify(Gaussian(2.0))
    with pytest.raises(TypeError, match=r"or Certificate.load reads, got 'run.json'"):
        verify("run.json")
    path = tmp_path / "run.ledger"
    Ledger.create(path).close()
    for data in (path.read_bytes(), b"", b"claim: 1"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"run.ledger is no certificate, which is JSON.*dpkit audit"):
            Certificate.load(path)
