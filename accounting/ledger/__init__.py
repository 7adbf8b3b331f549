"""Ledgers: what was released, on what, under which budget, recorded before any noise is drawn."""

from accounting.ledger.entries import Mark, Row
from accounting.ledger.interchange import from_dp_accounting, from_opacus, to_dp_accounting
from accounting.ledger.ledger import Ledger

__all__ = ["Ledger", "Mark", "Row", "from_dp_accounting", "from_opacus", "to_dp_accounting"]
