"""What reference policies refuse: parameters out of range, and rewards that their theory is not for."""

from __future__ import annotations

import pytest
from tabled import tabled

from dpbandits.policies import (
    CRMM,
    GLBOMD,
    GLMUCB,
    OFUL,
    OL2M,
    AdaOFUECOLog,
    BGLinCB,
    ECOLog,
    LinearThompson,
    OFULMLogB,
    RSGLinCB,
)

THEORY = {"parameters": "theory"}
CLICKS = r"link must be 'logistic' and reward_range in \[0, 1\] for the theory's parameters of "
NOISE = "noise_bound must be given for the theory's parameters"
FINITE = "reward_range must be finite for the theory's parameters"


@tabled(
    ("kind", "parameters", "message"),
    [
        (AdaOFUECOLog, THEORY | {"link": "probit"}, f"{CLICKS}AdaOFUECOLog"),
        (OFULMLogB, THEORY | {"link": "probit"}, f"{CLICKS}OFULMLogB"),
        (OFULMLogB, THEORY | {"reward_range": (0.0, 2.0)}, CLICKS),
        (OL2M, THEORY | {"link": "probit"}, f"{CLICKS}OL2M"),
        (OL2M, THEORY | {"reward_range": (0.0, 2.0)}, CLICKS),
        (BGLinCB, THEORY | {"link": "poisson", "horizon": 10}, FINITE),
        (RSGLinCB, THEORY | {"link": "poisson", "horizon": 10}, FINITE),
        (AdaOFUECOLog, {"link": "poisson"}, "reward_range must be finite for AdaOFUECOLog"),
        (ECOLog, {"link": "poisson"}, "reward_range must be finite for ECOLog"),
        (ECOLog, THEORY | {"reward_range": (0, 2)}, r"reward_range must be in \[0, 1\] for ECOLog"),
        (GLMUCB, THEORY | {"link": "poisson"}, NOISE),
        (LinearThompson, THEORY, NOISE),
        (OFUL, THEORY, NOISE),
        (GLBOMD, {"parameters": ""}, "parameters must be 'practical', 'theory' or 'published'"),
        (GLBOMD, {"parameters": None}, "parameters must be 'practical', 'theory' or 'published'"),
        (CRMM, {"horizon": 10, "tail": 0.0}, r"tail must lie in \(0, 1\], got tail="),
        (CRMM, {"horizon": 10, "tail": 1.5}, r"tail must lie in \(0, 1\], got tail="),
        (OFUL, {"parameters": "paper"}, "parameters must be 'practical' or 'theory', got parameters='paper'"),
        (OFUL, {"radius_scale": 0.0}, "radius_scale must be positive and finite, got radius_scale=0.0"),
        (OFUL, {"failure_probability": 1.0}, r"failure_probability must lie in \(0, 1\), got failure_probability=1.0"),
        (OFUL, {"noise_bound": -1.0}, "noise_bound must be positive and finite, got noise_bound=-1.0"),
        (OFUL, {"ridge": 0.0}, "ridge must be positive and finite, got ridge=0.0"),
    ],
)
def test_what_does_not_fit_is_refused(kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        kind(2, **parameters)
