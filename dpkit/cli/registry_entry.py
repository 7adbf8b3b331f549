"""``dpkit ledger registry``: a draft for the public registry of deployments of differential privacy.

The registry (registry.opendp.org; Nanayakkara, Ghazi & Vadhan, arXiv:2509.13509) describes a deployment in three tiers.
A ledger knows the second and most of the third: the variant, the unit, the parameters, how they were added up and which
mechanisms were used. What only people know (the name, the purpose, who is trusted and why) comes from a file, and is
marked ``TODO`` where it does not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from accounting import __version__
from dpkit.cli.card import Card, change_of

if TYPE_CHECKING:
    from accounting import Ledger

__all__ = ["as_yaml", "entry", "template"]

# what only people know: section, field, and what is asked
_ASKED: tuple[tuple[str, str, str], ...] = (
    ("basic", "intended_use", "TODO: what the published data are for"),
    ("basic", "data_product_type", "Summary statistics"),
    ("basic", "data_product_region", "TODO: the region that the data describe"),
    ("basic", "description", "TODO: what is published, in a sentence or two"),
    ("basic", "data_product_sector", "Technology"),
    ("dp_variant", "unprotected_quantities", "TODO: what is published without noise, if anything"),
    (
        "deployment_model",
        "actors",
        "TODO: who sees the raw data, who sees the releases, who is trusted with what and why",
    ),
    ("deployment_model", "data_source_type", "Static"),
    ("deployment_model", "access_type", "Non-interactive"),
    ("accounting", "post_processing", "TODO: what is computed from the noisy releases before they are published"),
    (
        "implementation",
        "preprocessing_and_hyperparameter_tuning",
        "TODO: how bounds, categories and budgets were chosen, and whether private data were looked at for it",
    ),
    ("implementation", "justification", "TODO: why these choices"),
)


def entry(card: Card, ledger: Ledger, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The registry's record as a nested dictionary.

    Parameters
    ----------
    card : Card
        What the ledger claims.
    ledger : Ledger
        Where its composition comes from.
    about : mapping, optional
        What people say: sections of the registry's schema (``basic``, ``deployment_model``, …), each with fields; they
        win over what the ledger says. Empty texts count as not said.

    Raises
    ------
    ValueError
        If the ledger has no budget, so that no unit is known, is a simulation, or has no finite ε; or if ``about`` has
        something that is not a section of fields.
    """
    budget = card.budget
    if budget is None:
        raise ValueError("the ledger must have a budget, which says who is protected; this one has none")
    if card.simulation:
        raise ValueError("the ledger must not be a simulation: its noise can be computed again and protects nobody")
    if not math.isfinite(card.epsilon):
        raise ValueError("the ledger must have a finite ε: no accountant bounds what it recorded")
    pure = card.delta == 0
    kinds = ", ".join(f"{count} × {name}" for name, count in card.releases) or "none yet"
    said: dict[str, dict[str, Any]] = {
        "basic": {
            "name": card.name,
            "data_curators": ["TODO: who publishes"],
            "publication_date": f"{card.first or card.made:%Y-%m-%d}",
        },
        "dp_variant": {
            "variant_name": "Pure DP" if pure else "Approximate DP",
            "data_domain": f"All data sets of the stated form. Neighbours: {change_of(budget)}.",
        },
        "privacy_loss": {
            "privacy_unit": budget.unit,
            "privacy_unit_details": f"Adjacency “{budget.adjacency}”: {change_of(budget)}; all else is the same.",
            "privacy_parameters": {"epsilon": card.epsilon, **({} if pure else {"delta": card.delta})},
            "privacy_parameters_details": _details(card),
        },
        "deployment_model": {
            "model_name": "Central",
            "release_type": "One release" if card.rows == 1 else "Many releases",
            "release_type_details": (
                f"A ledger refuses every release that would take the total past ε = {budget.epsilon:g} at "
                f"δ = {budget.delta:g}; the budget is never reset."
            ),
        },
        "accounting": {"composition": _composition(card, ledger)},
        "implementation": {
            "mechanisms": (
                f"Releases by description: {kinds}. Library: dpkit {__version__}. Its Laplace and Gaussian noise is "
                "drawn exactly, as whole numbers on a lattice, from a cryptographic source; sensitivities hold in "
                "floating point by clipping. Every cost is recorded before noise is drawn."
            ),
        },
        "administrative": {"registry_authors": ["TODO: who wrote this record"]},
    }
    for section, name, asked in _ASKED:
        said.setdefault(section, {})[name] = asked
    for section, fields in (about or {}).items():
        if section not in said or not isinstance(fields, Mapping):
            raise ValueError(f"about must have sections of fields, of {', '.join(said)}; got {section!r}")
        said[section].update(
            {
                key: f"{value}" if hasattr(value, "isoformat") else value
                for key, value in fields.items()
                if value not in ("", [""])  # of the template, and nobody has filled it
            }
        )
    name = f"{said['basic']['name']} {said['basic']['publication_date'][:4]}"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": said}


def template() -> str:
    """A file for ``--about``, with everything that a ledger cannot know."""
    lines = ["# What only people know, for `dpkit ledger registry --about THIS_FILE`", "[basic]", 'name = ""']
    lines += ['data_curators = [""]', "# publication_date = 2026-01-31  # without it: the date of the first release"]
    section = "basic"
    for asked_in, name, asked in _ASKED:
        if asked_in != section:
            section = asked_in
            lines += ["", f"[{section}]"]
        lines.append(f"{name} = {json.dumps(asked, ensure_ascii=False)}")
    return "\n".join([*lines, "", "[administrative]", 'registry_authors = [""]', 'sources = ""', ""])


def as_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """YAML of nested dictionaries of texts, numbers and lists of texts, quoted as in JSON, which YAML reads."""
    lines = []
    for key, one in value.items():
        start = " " * indent + f"{key}:"
        if isinstance(one, Mapping):
            lines.append(f"{start}\n{as_yaml(one, indent + 2)}")
        elif isinstance(one, list):
            items = "\n".join(" " * (indent + 2) + "- " + json.dumps(item, ensure_ascii=False) for item in one)
            lines.append(f"{start}\n{items}\n" if items else f"{start} []\n")
        elif isinstance(one, float):
            # YAML 1.1 reads 1e-06 as a text; a number has a point
            lines.append(
                f"{start} {one if 'e' not in repr(one) or '.' in repr(one) else repr(one).replace('e', '.0e')}\n"
            )
        else:
            lines.append(f"{start} {json.dumps(one, ensure_ascii=False)}\n")
    return "".join(lines)


def _details(card: Card) -> str:
    said = [] if card.mu is None else [f"The releases together are {card.mu:.4g}-GDP (Gaussian differential privacy)."]
    if card.budget is not None:
        said.append(
            f"Enforced for all releases, also later ones: ε = {card.budget.epsilon:g} at δ = {card.budget.delta:g}."
        )
    return " ".join([*said, card.claim])


def _composition(card: Card, ledger: Ledger) -> str:
    from dpkit.cli.printing import accountant_name

    parts = (
        f" Parts of the data have scopes of their own ({card.scopes}); disjoint ones are composed in parallel."
        if card.scopes
        else ""
    )
    return (
        "Sequential composition of all recorded releases by the tightest proved accountant for their descriptions; "
        f"releases that are chosen adaptively are bounded by a privacy filter ({accountant_name(ledger.accountant)})."
        f"{parts} The ledger's head is {card.head}."
    )
