"""What the comparison of DP-FTRL trains: a linear model or a small network, by each of the algorithms.

The network has one hidden layer of 16 tanh units, in float32, and starts from one public draw for all. "Opacus" is the
library by itself: its ``PrivacyEngine``, its own sampling and noise from torch's generator, at the noise multiplier of
``dp_sgd`` and with the same learning rates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Gaussian, PoissonSubsampled, calibrate
from dpkit.optimize import DPFTRL, dp_sgd, glm

__all__ = ["Trained", "train"]

Vector = NDArray[np.float64]

_SAMPLING = {"DP-FTRL, Poisson": "cyclic_poisson", "DP-FTRL, balls in bins": "cyclic_balls_in_bins"}


class Trained(NamedTuple):
    """A model, as what it predicts."""

    eta: Callable[[Vector], Vector]
    noise_multiplier: float


def train(
    algorithm: str,
    X: Vector,
    y: Vector,
    *,
    network: bool,
    budget: Budget,
    rate: float,
    epochs: int,
    batch: int,
    cooldown: float,
    seed: int,
) -> Trained:
    """One run of an algorithm, with gradients clipped to 1."""
    known: dict[str, Any] = {"budget": budget, "epochs": epochs, "batch": batch, "rng": np.random.default_rng(seed)}
    steps = epochs * -(-len(X) // batch)
    if network or algorithm == "Opacus":
        kind: Any = np.float32 if network else np.float64
        rows, targets = X.astype(kind), y.astype(kind)
        model, known = _module(X.shape[1], network), known | {"loss": _loss, "clip": 1.0}
    else:
        rows, targets, model = X, y, glm("logistic", clip=1.0)
    if algorithm == "Opacus":
        return _opacus(model, rows, targets, budget, rate, epochs, batch, cooldown, seed)
    if algorithm == "DP-SGD":
        fit = dp_sgd(model, rows, targets, public_rows=len(X), optimizer=_cooling(rate, steps, cooldown), **known)
        if not fit.success:  # Ctrl-C must end the table, and leave no line of half a run
            raise KeyboardInterrupt(fit.message)
    else:
        sampling = _SAMPLING.get(algorithm)
        if sampling is not None:
            known |= {"sampling": sampling, "public_rows": len(X)}
        factors: Any = "independent" if algorithm == "DP-SGD, fixed order" else "banded"
        run = DPFTRL(
            model, rows, targets, factorization=factors, order_seed=seed, learning_rate=rate, cooldown=cooldown, **known
        )
        run.advance(run.horizon)
        fit = run.result()
    if network:
        return Trained(_outputs(fit.module), float(fit.noise_multiplier))
    return Trained(lambda Z: np.asarray(Z @ fit.x), float(fit.noise_multiplier))


def _module(features: int, network: bool) -> Any:
    import torch

    if not network:
        layer = torch.nn.Linear(features, 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(layer.weight)
        return layer
    made = torch.nn.Sequential(torch.nn.Linear(features, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    start = np.random.default_rng(0)
    for p in made.parameters():
        p.data = torch.from_numpy(start.uniform(-1, 1, p.shape) / np.sqrt(p.shape[-1])).to(p.dtype)
    return made


def _loss(outputs: Any, targets: Any) -> Any:
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(outputs[..., 0], targets)


def _outputs(module: Any) -> Callable[[Vector], Vector]:
    import torch

    kind = next(module.parameters()).dtype

    def eta(Z: Vector) -> Vector:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(Z).to(kind))[:, 0].double().numpy())

    return eta


def _cooling(rate: float, steps: int, cooldown: float) -> Callable[[list[Any]], Any]:
    """Plain SGD with the learning rates of ``dp_ftrl``."""
    import torch

    class Cooling(torch.optim.SGD):  # type: ignore[misc]
        left = steps

        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                group["lr"] = rate * min(1.0, self.left / (cooldown * steps))
            self.left = max(self.left - 1, 0)
            return super().step(closure)

    return lambda parameters: Cooling(parameters, lr=rate)


def _opacus(
    model: Any,
    X: Vector,
    y: Vector,
    budget: Budget,
    rate: float,
    epochs: int,
    batch: int,
    cooldown: float,
    seed: int,
) -> Trained:
    import torch
    from opacus import PrivacyEngine

    steps = -(-len(X) // batch)
    sampled = batch / len(X)
    z = calibrate(lambda z: (epochs * steps) * PoissonSubsampled(Gaussian(z, adjacency="add_remove"), sampled), budget)
    torch.manual_seed(seed)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=_cooling(rate, epochs * steps, cooldown)(list(model.parameters())),
        data_loader=torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), batch_size=batch
        ),
        noise_multiplier=z,
        max_grad_norm=1.0,
    )
    for _ in range(epochs):
        for rows, targets in loader:
            optimizer.zero_grad()
            _loss(private(rows), targets).backward()
            optimizer.step()
    return Trained(_outputs(private), z)
