"""What a private policy has released, as a value: it chooses anywhere, and holds no secret.

Everything that a choice depends on, arms and draws aside, is the output of a private mechanism or a public number. So
it may be copied, logged, published, or sent to a phone; choices made with it cost nothing more. The learner, which
holds the secret half, writes such a choice down with ``register`` and learns its reward with ``update``:

>>> import numpy as np
>>> from accounting import Budget
>>> from dpbandits import Released
>>> from dpbandits.policies import OnePassPrivateGLM
>>> learner = OnePassPrivateGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=1000)
>>> text = learner.released().to_json()                                        # to whoever decides
>>> released = Released.from_json(text)
>>> index, probability = released.choose(np.eye(2))
>>> decision = learner.register(np.eye(2), index, probability=probability)     # back at the learner
>>> learner.update(decision, reward=1.0)

A ``Released`` is made of the policy's constructor arguments and of the fields of its public half that choices depend
on. The class's own constructor makes an object of the former, from which secrets, generator, ledger and books are
deleted: so what chooses is the policy's own code, and it has nothing else to read.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget, BudgetExceeded
from accounting.arrays import Array
from dpbandits.durability.state import config_of, kind_name, known_kind, numbers, renamed
from dpbandits.policy import rounds
from dpbandits.policy.announced import silently
from dpbandits.policy.checks import each_of
from dpbandits.policy.choices import Law
from dpbandits.policy.chosen import Choice, Choices, SlateChoice
from dpbandits.policy.many import Each
from dpbandits.policy.ranking import Ranking
from dpbandits.policy.slates import Page, SlatePolicy
from dpkit import randomness
from dpkit.models.links import is_named
from dpkit.states import files
from dpkit.states.entries import conform, freeze, plain, short, taken

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy
    from dpkit.models.links import Link

__all__ = ["Released"]

_FORMAT, _VERSION = "dpbandits released", 1
_LONGEST, _LONGEST_NAME = 2**28, 2000
_ENTRIES = {"policy": "", "config": None, "public": None, "releases": 0, "number": 0, "run": "", "price": ""}
# what a policy has besides numbers that are public, and the attributes that it names as secret
_BOOKS = {"rng", "ledger", "decisions", "label", "waiting", "lock", "_new_checkpoint", "run", "durable", "counting"}
_BOOKS |= {"persons", "unseen", "scale"}


class Released:
    """What a policy has released, as a value by which other machines choose arms: immutable, safe for threads.

    Made by :meth:`dpbandits.PrivatePolicy.released` and :meth:`from_json`.

    Attributes
    ----------
    number : int
        Grows whenever what choices depend on has changed; 0 before the first release.
    run : str
        The run of the policy.
    price : str
        What the whole run costs, in the words of ``policy.privacy()``.
    policy : str
        Module and name of the policy's class.
    takes : {"arms", "context"}
        What choices are made among: the rows of an array, or fixed arms, given a context.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpbandits import Released
    >>> from dpbandits.policies import OnePassPrivateGLM
    >>> policy = OnePassPrivateGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=1000)
    >>> elsewhere = Released.from_json(policy.released().to_json())
    >>> index, probability = elsewhere.choose(np.eye(2))
    >>> index in (0, 1)
    True
    """

    __slots__ = ("_config", "_link", "_shell", "number", "policy", "price", "run", "takes")

    number: int
    run: str
    price: str
    policy: str
    takes: Literal["arms", "context"]
    _shell: PrivatePolicy[Any]
    _config: dict[str, Any]
    _link: Link | None  # the caller's own

    def __init__(self, shell: PrivatePolicy[Any], config: dict[str, Any], link: Link | None, **told: Any) -> None:
        for name, value in {"_shell": shell, "_config": config, "_link": link, "takes": shell.takes, **told}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Released cannot be changed, got a new value for {name!r}")

    def __repr__(self) -> str:
        return f"Released({self.policy.rpartition(':')[-1]}, number={self.number}, {self.price})"

    def __reduce__(self) -> Any:
        return Released.from_json, (self.to_json(), self._link)

    @property
    def public(self) -> dict[str, Any]:
        """What choices depend on: copies of the fields of ``policy.public`` that they are made of."""
        return {name: plain(value) for name, value in choosing(self._shell).items()}

    @property
    def names(self) -> tuple[str, ...]:
        """What arms are called, by their index, where they have names."""
        found = self._shell.catalogue
        return () if found is None else tuple(found.names)

    # -------------------------------------------------------------------------------------------- choosing

    def choose(self, arms: ArrayLike | None = None, rng: np.random.Generator | None = None) -> Choice:
        """The row of the chosen arm (or the arm, for a context), and with which probability it was chosen.

        ``index, probability = released.choose(arms)``; or ``released.choose(arms).index``, which takes no more time
        than the draw. Of a policy that chooses slates it is a :class:`~dpbandits.policy.chosen.SlateChoice`, with the
        ``indices`` of all positions; every arm is scored once.

        Parameters
        ----------
        arms : array_like of shape (K, d), or a context of shape (d,), or None
            As for the policy's ``select``.
        rng : numpy.random.Generator, optional
            None is the secure source.

        Raises
        ------
        ValueError
            If they are not such an array.

        Examples
        --------
        A page of two out of three articles:

        >>> from dpbandits.policies import SlatePrivateGLM
        >>> policy = SlatePrivateGLM(dim=3, k=2, budget=Budget(1.0, 1e-6), horizon=1000)
        >>> page = policy.released().choose(np.eye(3))
        >>> policy.register(np.eye(3), page.indices).indices == page.indices
        True
        """
        if isinstance(shell := self._shell, SlatePolicy):
            page = self._page(shell, arms, randomness.resolve(rng))
            return SlateChoice(tuple(page.indices.tolist()), page.law)
        found = self._law(arms)
        if not isinstance(found, Law):
            return Choice(int(found.argmax()), None)
        return Choice(int(found.draw(randomness.resolve(rng)).argmax()), found)

    def choose_many(
        self,
        arms: ArrayLike | Sequence[Any] | int,
        rng: np.random.Generator | None = None,
        probabilities: bool = False,
    ) -> Choices:
        """Choose for many requests at once, each with a draw of its own.

        Parameters
        ----------
        arms : array_like of shape (n, K, d), or a sequence of n arrays of shape (K_i, d)
            What each request offers; n contexts, shape (n, d), for policies that take them; a whole number n where
            ``choose`` needs nothing; a sequence of what ``choose`` takes where slates are chosen. They are not copied.
        rng : numpy.random.Generator, optional
            None is the secure source.
        probabilities : bool
            Whether they are computed now. Otherwise that is done when somebody asks for them, and the arms must be left
            unchanged until then.

        Raises
        ------
        ValueError
            Naming the first request that offers something else.

        Examples
        --------
        >>> from dpbandits.policies import OnePassPrivateGLM
        >>> released = OnePassPrivateGLM(dim=2, budget=Budget(1.0, 1e-6), horizon=1000).released()
        >>> choices = released.choose_many(np.tile(np.eye(2), (1000, 1, 1)))
        >>> choices.indices.shape, choices[0].probability
        ((1000,), 0.5)
        """
        source = randomness.resolve(rng)
        if isinstance(shell := self._shell, SlatePolicy):
            made = self._pages(shell, arms, source)
        elif not len(found := rounds.checked(self._shell, arms)):
            return Choices(np.empty(0, np.int64), Each([]))
        else:
            laws = self._shell.score_many_elsewhere(found)
            made = Choices(laws.draw(source), laws)
        if probabilities:
            made.probabilities  # noqa: B018
        return made

    def rank(self, arms: ArrayLike) -> Ranking:
        """Public candidates, the same for many requests: checked and scored once, for all that is chosen among them.

        Parameters
        ----------
        arms : array_like of shape (K, d)
            Copied.

        Examples
        --------
        A catalogue of three, of which the second request must not be shown the first two:

        >>> from dpbandits.policies import OnePassPrivateGLM
        >>> released = OnePassPrivateGLM(dim=3, budget=Budget(1.0, 1e-6), horizon=1000).released()
        >>> ranking = released.rank(np.eye(3))
        >>> ranking.choose_many([[], [0, 1]]).indices[1]
        np.int64(2)
        """
        if self.takes == "context":
            raise TypeError(f"{type(self._shell).__name__} takes a context and no arms to rank")
        X = np.array(self._shell.checked_arms(arms))
        X.setflags(write=False)
        return Ranking(self._shell.score_elsewhere, X, self._shell if isinstance(self._shell, SlatePolicy) else None)

    def probabilities(self, arms: ArrayLike | None = None) -> Array:
        """The probability of every choice, shape (K,); see ``Decision.probability`` for its error."""
        found = self._law(arms)
        if isinstance(found, Law):
            return found.chances()
        chosen: Array = np.zeros(len(found))
        chosen[found.argmax()] = 1.0
        return chosen

    def probability(self, arms: ArrayLike | None, index: int) -> float:
        """That of one choice."""
        found = self._law(arms)
        return found.chance(index)[0] if isinstance(found, Law) else float(found.argmax() == index)

    def _page(self, shell: SlatePolicy, arms: ArrayLike | None, rng: np.random.Generator) -> Page:
        X, sets = shell.checked_slots(arms)
        return shell.page(X, sets, self._shell.score_elsewhere, rng)

    def _pages(self, shell: SlatePolicy, arms: Any, rng: np.random.Generator) -> Choices:
        if not isinstance(arms, Sequence | np.ndarray) or isinstance(arms, (str, bytes)):
            raise ValueError(f"arms must be those of many requests, a list of arrays, got {short(arms)}")
        pages = each_of("arms", lambda one: self._page(shell, one, rng), arms)
        laws = Each([page.scores if page.law is None else page.law for page in pages])
        return Choices([tuple(page.indices.tolist()) for page in pages], laws)

    def _law(self, arms: ArrayLike | None) -> Array | Law:
        return self._shell.score_elsewhere(self._shell.checked_arms(arms))

    # ------------------------------------------------------------------------------------------------ JSON

    def to_json(self) -> str:
        """JSON; arrays are base64 of little-endian numbers, so that whoever reads it makes the same choices."""
        tree = {"format": _FORMAT, "version": _VERSION, "policy": self.policy, "config": self._config}
        tree |= {"public": self.public, "releases": self._shell.releases}
        tree |= {name: getattr(self, name) for name in ("number", "run", "price")}
        return json.dumps(_written(tree), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, link: Link | None = None) -> Released:
        """The inverse of :meth:`to_json`.

        Parameters
        ----------
        text : str or bytes
        link : Link, optional
            The caller's link, if the policy did not use a named one.

        Raises
        ------
        ValueError
            If it is not of this format and version, or does not fit together: of an unknown policy, with missing or
            further entries, or with values of another type or shape or that are not finite.
        """
        if len(text) > _LONGEST:
            raise ValueError(f"a release must have at most {_LONGEST} characters, got {len(text)}")
        try:
            tree = files.restored(json.loads(text, parse_constant=_refused), _bytes)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"text must be a release as JSON: {error}") from None
        if not isinstance(tree, dict) or (tree.pop("format", None), tree.pop("version", None)) != (_FORMAT, _VERSION):
            raise ValueError(f"text must be of the format {_FORMAT!r}, version {_VERSION}, got another one")
        if set(tree) != set(_ENTRIES):
            raise ValueError(f"a release must hold the entries {sorted(_ENTRIES)}, got {short(sorted(tree))}")
        for name, like in _ENTRIES.items():
            if like is not None:
                conform(name, tree[name], like)
            elif not isinstance(tree[name], dict):
                raise ValueError(f"{name} must hold entries, got {short(tree[name])}")
        if len(tree["price"]) > _LONGEST_NAME or len(tree["run"]) > _LONGEST_NAME:
            raise ValueError("price and run must be short texts, got longer ones")
        try:
            with np.errstate(all="ignore"):  # what overflows in a constructor or a check is refused
                _check_size(tree["policy"], tree["config"], tree["public"])
                shell = shell_of(tree["policy"], tree["config"], link)
                shell.releases = tree["releases"]
                choose_by(shell, tree["public"])  # which says how many arms there are
                if shell.releases > (most := shell.most_releases()):
                    raise ValueError(f"releases must be at most {most}, got releases={tree['releases']}")
        except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, MemoryError, BudgetExceeded) as error:
            raise ValueError(f"a release must fit together, got one that does not: {error!r}") from error
        texts = {name: tree[name] for name in ("policy", "number", "run", "price")}
        return cls(shell, tree["config"], link, **texts)


def value_of(policy: PrivatePolicy[Any]) -> Released:
    """What a policy has released."""
    chooser = policy.chooser()
    config, kind = config_of(chooser), kind_name(type(chooser))
    link = None if is_named(config.get("link", "linear")) else chooser.link
    shell = shell_of(kind, config, link)
    shell.releases = chooser.releases
    choose_by(shell, {name: plain(value) for name, value in choosing(chooser).items()})
    price = str(policy.privacy(policy.budget.delta))
    return Released(shell, config, link, policy=kind, number=policy.number(), run=policy.waiting.run, price=price)


def choosing(policy: PrivatePolicy[Any]) -> dict[str, Any]:
    """The part of the public half that choices depend on."""
    found = vars(policy.public)
    parts = {name: getattr(policy, name) for name in policy.public_parts}
    reads = policy.choices_read or getattr(getattr(policy, "rule", None), "reads", ())
    return {name: found[name] for name in reads or found} | parts


def choose_by(shell: PrivatePolicy[Any], saved: Any) -> None:
    """Let the shell choose by what :func:`choosing` said, checked, from now on; it cannot be changed."""
    saved = renamed(saved, shell.public_parts)
    for name in shell.public_parts:
        part = deepcopy(getattr(shell, name))
        part.resume(saved[name])
        setattr(shell, name, part)
    shell.public = shell.with_room(shell.public)
    known = taken("public", saved, choosing(shell))
    freeze(known)
    shell.public = SimpleNamespace(**known)


def shell_of(kind: str, config: Mapping[str, Any], link: Link | None) -> PrivatePolicy[Any]:
    """A policy of these arguments that can do nothing but choose; ``link`` is the caller's own, if there is one."""
    with _templates:
        made = _template(kind, json.dumps(_written(config), sort_keys=True), link)
    shell: PrivatePolicy[Any] = object.__new__(type(made))
    # nothing in a template is ever changed: what differs from release to release is not in it
    vars(shell).update(vars(made))
    return shell


def _check_size(kind: str, config: Mapping[str, Any], public: Any) -> None:
    """No text can ask for much more memory than its own size; of an unknown kind nothing is made."""
    made: Any = known_kind(kind)
    if made is not None and not made.offer.numbers(config) <= 2 * numbers(public) + 2**12:
        raise ValueError(f"dim must be that of the arrays in the release, got dim={short(config.get('dim'))}")


_templates = threading.Lock()


@lru_cache(maxsize=32)
def _template(kind: str, config: str, link: Link | None) -> PrivatePolicy[Any]:
    """From the constructor, once for all releases of a run."""
    made: Any = known_kind(kind)
    if not hasattr(made, "released"):
        raise ValueError(f"policy must be a private policy that is imported, got policy={short(kind)}")
    arguments = files.restored(json.loads(config), _bytes)
    arguments["budget"] = Budget(**arguments["budget"])
    if link is not None:
        arguments["link"] = link
    with silently():
        policy = made(**arguments)
    template: PrivatePolicy[Any] = object.__new__(made)
    kept = vars(policy).keys() - _BOOKS - set(policy.secret)
    vars(template).update({name: vars(policy)[name] for name in kept})
    return template


def _written(tree: Mapping[str, Any]) -> Any:
    """A tree as JSON has it, which knows no infinity."""
    return files.written(tree, lambda data: base64.b64encode(data).decode(), finite=True)


def _bytes(text: Any, size: int) -> bytes:
    data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    if len(data) != size:
        raise ValueError(f"an array must have the shape that it says, got {len(data)} bytes for {size}")
    return data


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no value of a release")
