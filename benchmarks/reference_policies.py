"""The reference policies: time per round, and regret on the workloads of the papers that introduced them.

    OPENBLAS_NUM_THREADS=1 python benchmarks/reference_policies.py speed
    OPENBLAS_NUM_THREADS=1 python benchmarks/reference_policies.py logistic --seeds 3
    OPENBLAS_NUM_THREADS=1 python benchmarks/reference_policies.py heavy --seeds 3

``speed``: median of one select + update with d = K = 20, next to the arithmetic that no optimistic policy can do
without, which is measured in turns with it so that both see the same machine; then with 10,000 arms in 50 dimensions.
``logistic``: d = 2, K = 20 arms of the unit ball in every round, T = 3000, beside what the authors' public code gives.
``heavy``: d = 2, 50 fixed arms, T = 18,000, four laws of noise; and Hvt-UCB's time against HEAVY-OFUL's, both this
package's and one fit of the same Huber regression by a generic solver over Python loops, as its authors run it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from dpbandits.policies import (
    BMM,
    CRMM,
    CRT,
    CRTM,
    GLBOMD,
    GLMUCB,
    GLOC,
    MENU,
    OFUGLB,
    OFUL,
    OL2M,
    TOFU,
    AdaOFUECOLog,
    AdaOFUL,
    BGLinCB,
    ECOLog,
    HeavyOFUL,
    HvtUCB,
    LaplaceThompson,
    LinearThompson,
    MoM,
    OFULMLogB,
    OFULogR,
    RSGLinCB,
    Uniform,
)
from dpbandits.policy.protocol import Policy
from dpkit.models.links import get_link

Factory = Callable[[np.random.Generator], Policy]


def unit_ball(rng: np.random.Generator, *shape: int) -> np.ndarray:
    X = rng.standard_normal(shape)
    return X * (rng.random(shape[:-1])[..., None] ** (1 / shape[-1]) / np.linalg.norm(X, axis=-1, keepdims=True))


# ---------------------------------------------------------------------------------------------------- speed


def beside_the_floor(policy: Policy, X: np.ndarray, rounds: int) -> tuple[float, float]:
    """Median seconds of the numpy lines alone, and of select + update, round by round in turns."""
    d = X.shape[2]
    inverse, theta, b = np.eye(d), np.zeros(d), np.zeros(d)
    coins = np.random.default_rng(1).random(rounds)
    seconds = np.empty((rounds, 2))
    for t in range(rounds):
        arms = X[t % len(X)]
        start = time.perf_counter()
        scores = arms @ theta + np.sqrt(np.einsum("ij,ij->i", arms @ inverse, arms))
        x = arms[scores.argmax()]
        u = inverse @ x
        inverse -= (u / (1.0 + x @ u))[:, None] * u
        b += x
        theta = inverse @ b
        middle = time.perf_counter()
        decision = policy.select(arms)
        policy.update(decision, float(coins[t] < 0.5))
        seconds[t] = middle - start, time.perf_counter() - middle
    floor, whole = np.median(seconds[rounds // 10 :], axis=0)
    return float(floor), float(whole)


def speed() -> None:
    T = 2000
    one_pass: dict[str, Callable[[int], Policy]] = {
        "GLBOMD": GLBOMD,
        "HvtUCB": lambda d: HvtUCB(d, horizon=T),
        "OFUL": OFUL,
        "GLOC": GLOC,
        "OL2M": OL2M,
        "ECOLog": ECOLog,
        "CRTM": lambda d: CRTM(d, horizon=T),
        "CRMM": lambda d: CRMM(d, horizon=T),
        "CRT": CRT,
        "OFULMLogB": OFULMLogB,
        "AdaOFUECOLog": AdaOFUECOLog,
        "LinearThompson": lambda d: LinearThompson(d, rng=np.random.default_rng(0)),
    }
    X = unit_ball(np.random.default_rng(0), 1000, 20, 20)
    print(f"{'d = K = 20':18}{'µs':>8}{'floor µs':>10}{'× floor':>9}")
    for name, make in one_pass.items():
        floor, whole = min((beside_the_floor(make(20), X, T) for _ in range(3)), key=lambda pair: pair[1] / pair[0])
        print(f"{name:18}{whole * 1e6:8.1f}{floor * 1e6:10.1f}{whole / floor:9.2f}")
    X = unit_ball(np.random.default_rng(0), 4, 10_000, 50)
    print(f"\n{'d = 50, K = 10^4':18}{'ms':>8}{'floor ms':>10}{'× floor':>9}")
    for name in ("GLBOMD", "HvtUCB", "OFUL", "GLOC"):
        floor, whole = beside_the_floor(one_pass[name](50), X, 40)
        print(f"{name:18}{whole * 1e3:8.2f}{floor * 1e3:10.2f}{whole / floor:9.2f}")


# ------------------------------------------------------------------------------------------------- logistic


def logistic(seeds: int) -> None:
    T = 3000
    # the authors' public code, at S = 3 and 5; None: not measured
    table: list[tuple[str, Callable[[float, np.random.Generator], Policy], tuple[float | None, float | None]]] = [
        ("uniform", lambda S, rng: Uniform(2, rng=rng), (1253, 1438)),
        ("GLBOMD", lambda S, rng: GLBOMD(2, theta_bound=S), (None, None)),
        ("GLBOMD, theory", lambda S, rng: GLBOMD(2, theta_bound=S, parameters="theory"), (None, None)),
        ("GLMUCB", lambda S, rng: GLMUCB(2, theta_bound=S), (275, None)),
        ("GLOC", lambda S, rng: GLOC(2, theta_bound=S), (872, 1382)),
        ("BGLinCB", lambda S, rng: BGLinCB(2, theta_bound=S, horizon=T, rng=rng), (None, None)),
        ("RSGLinCB", lambda S, rng: RSGLinCB(2, theta_bound=S, horizon=T), (134, 93)),
        ("RSGLinCB, scale 4", lambda S, rng: RSGLinCB(2, theta_bound=S, horizon=T, radius_scale=4.0), (134, 93)),
        ("ECOLog", lambda S, rng: ECOLog(2, theta_bound=S), (120, 111)),
        ("ECOLog, theory", lambda S, rng: ECOLog(2, theta_bound=S, parameters="theory"), (120, 111)),
        ("AdaOFUECOLog", lambda S, rng: AdaOFUECOLog(2, theta_bound=S), (115, 127)),
        ("AdaOFUECOLog, theory", lambda S, rng: AdaOFUECOLog(2, theta_bound=S, parameters="theory"), (115, 127)),
        ("OFULMLogB", lambda S, rng: OFULMLogB(2, theta_bound=S), (1658, 1892)),
        ("OFULMLogB, theory", lambda S, rng: OFULMLogB(2, theta_bound=S, parameters="theory"), (None, None)),
        ("LaplaceThompson", lambda S, rng: LaplaceThompson(2, theta_bound=S, rng=rng), (None, None)),
        ("OFUGLB", lambda S, rng: OFUGLB(2, theta_bound=S), (33, None)),
        ("OFULogR", lambda S, rng: OFULogR(2, theta_bound=S), (None, None)),
    ]
    for column, S in enumerate((3.0, 5.0)):
        print(f"\n{f'logistic, S = {S:g}':22}{'regret':>9}{'±':>7}{'CPU s':>8}{'public code':>13}")
        for name, make, published in table:
            regrets, seconds = [], []
            for seed in range(seeds):
                rng = np.random.default_rng([seed, 2, T])
                theta = rng.standard_normal(2)
                theta *= S / np.linalg.norm(theta)
                arms, coins = unit_ball(rng, T, 20, 2), rng.random(T)
                means = get_link("logistic").mean(arms @ theta)
                policy, regret = make(S, np.random.default_rng([seed, 1])), 0.0
                start = time.process_time()
                for t in range(T):
                    decision = policy.select(arms[t])
                    mean = means[t, decision.index]
                    policy.update(decision, float(coins[t] < mean))
                    regret += means[t].max() - mean
                regrets.append(regret)
                seconds.append(time.process_time() - start)
            reference = "" if published[column] is None else f"{published[column]:g}"
            print(f"{name:22}{np.mean(regrets):9.1f}{np.std(regrets):7.1f}{np.median(seconds):8.2f}{reference:>13}")


# ---------------------------------------------------------------------------------------------------- heavy


def looped_huber_fit(X: np.ndarray, r: np.ndarray, tau: np.ndarray, start: np.ndarray) -> np.ndarray:
    """One adaptive Huber regression by a generic solver, with a Python loop over the rounds."""
    from scipy.optimize import minimize

    def loss(v: np.ndarray) -> float:
        total = 0.5 * float(v @ v)
        for x, y, k in zip(X, r, tau, strict=True):
            z = abs(y - x @ v)
            total += 0.5 * z * z if z <= k else k * z - 0.5 * k * k
        return total

    def gradient(v: np.ndarray) -> np.ndarray:
        total = v.copy()
        for x, y, k in zip(X, r, tau, strict=True):
            total -= min(max(y - x @ v, -k), k) * x
        return total

    ball = {"type": "ineq", "fun": lambda v: 1.0 - v @ v}
    return np.asarray(minimize(loss, start, jac=gradient, constraints=ball, method="SLSQP").x)


def heavy(seeds: int) -> None:
    T = 18_000
    noises: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
        "t, 2.1": lambda rng: rng.standard_t(2.1, T),
        "N(0, 1)": lambda rng: rng.standard_normal(T),
        "t, 1.5": lambda rng: rng.standard_t(1.5, T),
        "±Pareto, 1.2": lambda rng: rng.choice([-1.0, 1.0], T) * (1 + rng.pareto(1.2, T)),
    }
    policies: dict[str, Factory] = {
        "uniform": lambda rng: Uniform(2, rng=rng),
        "OFUL": lambda rng: OFUL(2),
        "HvtUCB": lambda rng: HvtUCB(2, horizon=T, noise_scale=2.0),
        "HeavyOFUL": lambda rng: HeavyOFUL(2, horizon=T, noise_scale=2.0),
        "CRTM": lambda rng: CRTM(2, horizon=T, noise_scale=2.0),
        "CRMM": lambda rng: CRMM(2, horizon=T, noise_scale=2.0),
        "MENU": lambda rng: MENU(2, horizon=T, noise_scale=2.0),
        "BMM": lambda rng: BMM(2, horizon=T, noise_scale=2.0),
        "TOFU": lambda rng: TOFU(2, horizon=T, noise_scale=2.0),
        "CRT": lambda rng: CRT(2, noise_scale=2.0),
        "MoM": lambda rng: MoM(2, horizon=T, noise_scale=2.0),
        "AdaOFUL": lambda rng: AdaOFUL(2, horizon=T, noise_scale=2.0),
        "LinearThompson": lambda rng: LinearThompson(2, rng=rng),
    }
    print(f"{'mean regret ± std':18}" + "".join(f"{noise:>16}" for noise in noises) + f"{'CPU µs/round':>14}")
    for name, make in policies.items():
        cells, seconds = "", []
        for draw in noises.values():
            regrets = []
            for seed in range(seeds):
                rng = np.random.default_rng([seed, 77])
                arms = rng.uniform(-1, 1, (50, 2))
                arms /= np.linalg.norm(arms, axis=1).max() * (1 + 1e-12)
                theta = rng.uniform(-1, 1, 2)
                means, errors = arms @ (theta / np.linalg.norm(theta)), draw(rng)
                policy, regret = make(np.random.default_rng([seed, 1])), 0.0
                start = time.process_time()
                for error in errors:
                    decision = policy.select(arms)
                    policy.update(decision, means[decision.index] + error)
                    regret += means.max() - means[decision.index]
                regrets.append(regret)
                seconds.append((time.process_time() - start) / T)
            cells += f"{np.mean(regrets):9.0f} ±{np.std(regrets):5.0f}"
        print(f"{name:18}{cells}{np.median(seconds) * 1e6:14.0f}", flush=True)

    # one update after 18,000 rounds: the one-pass step, the refit from the last estimate, and the generic solver
    rng = np.random.default_rng(0)
    X, late = unit_ball(rng, T, 2), {}
    r = X @ [0.8, 0.6] + rng.standard_t(2.1, T)
    fitted = HeavyOFUL(2, horizon=T, noise_scale=2.0)
    for name, policy in (("Hvt-UCB", HvtUCB(2, horizon=T, noise_scale=2.0)), ("HEAVY-OFUL", fitted)):
        seconds = np.empty(T)
        for t in range(T):
            start = time.perf_counter()
            policy.update(policy.select(X[t : t + 1]), float(r[t]))
            seconds[t] = time.perf_counter() - start
        late[name] = float(np.median(seconds[-500:]))
    rows = fitted.rows.array
    start = time.perf_counter()
    theta = looped_huber_fit(rows[:, :2], rows[:, 2], rows[:, 3], np.zeros(2))
    late["generic solver over Python loops"] = time.perf_counter() - start
    print(f"\nlargest difference of the two solvers: {np.abs(theta - fitted.theta).max():.1e}")
    for name, value in late.items():
        print(f"{name:34}{value * 1e6:12.0f} µs per round at t = {T}: {value / late['Hvt-UCB']:8.0f} × Hvt-UCB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=("speed", "logistic", "heavy"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.workload == "speed":
        speed()
    elif arguments.workload == "logistic":
        logistic(arguments.seeds)
    else:
        heavy(arguments.seeds)


if __name__ == "__main__":
    main()
