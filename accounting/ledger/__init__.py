"""Ledgers: what was released, on what, under which budget, recorded before any noise is drawn."""

from accounting.ledger.memory import Ledger, Row

__all__ = ["Ledger", "Row"]
