"""How noise is made and used. Import the part that you need; nothing is loaded before.

=====================================  ============================================================================
:mod:`.randomness`, :mod:`.samplers`   where noise comes from, and exact laws
:mod:`.geometry`, :mod:`.clipping`     half-vectors, sensitivities, sets; lengths that bounds hold for
:mod:`.mechanisms`                     one release
:mod:`.continual`                      sums of a stream, released after every input
:mod:`.moments`                        sums of records of a stream: pairs, blocks, arms, people, shuffled
:mod:`.shuffle`                        sums and frequencies without a trusted server
:mod:`.queries`                        answers about a table
:mod:`.models`                         links, losses, likelihoods, priors
:mod:`.optimize`, :mod:`.torch`        private training; :mod:`.training` is what both do with rows
:mod:`.features`, :mod:`.sklearn`      rows in the unit ball, from columns or JSON; estimators
:mod:`.hyperparameters`                a private choice among runs
:mod:`.normal_chances`                 probabilities of normal vectors: how probable a perturbed choice was
:mod:`.states`                         what keeps a promise between one release and the next
=====================================  ============================================================================

Every mechanism states its sensitivity and its adjacency, describes what it releases to ``accounting``, and is charged
to a ledger before its noise is drawn.
"""

from importlib.util import find_spec
from os.path import dirname, isfile, join  # pathlib costs as much as all of this package
from typing import Any


def _check_accounting() -> None:
    """Refuse another package called ``accounting``, a common name, that Python finds before ours."""
    found = find_spec("accounting")
    origin = None if found is None else found.origin
    ours = join(dirname(dirname(__file__)), "accounting", "__init__.py")
    # installed apart from this package, ours still has this file
    if found is None or origin is None or not (origin == ours or isfile(join(dirname(origin), "releases.py"))):
        place = "none" if found is None else origin or list(found.submodule_search_locations or [])
        raise ImportError(
            f"dpkit needs the package 'accounting' that is installed with it, got {place}. If a file or folder of your "
            "own has that name, rename it: the folder of the script and the current one are searched first."
        )


_check_accounting()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from accounting import __version__

        return __version__
    raise AttributeError(f"module 'dpkit' has no attribute {name!r}")
