"""Ledgers: what was released, on what, under which budget, recorded before any noise is drawn.

Which file to read for which question:

=============================================  ===================================================================
what can I ask, and what may I spend?          ``ledger``: the class :class:`Ledger`
what keeps adaptive releases within a budget?  ``filters``: the theorems, and one file for each of their parts
what is written down, and what does it say     ``record``: entries, their JSON and hash chain, and the balance that
together?                                      all of them make
how do crashes, threads, forks and others      ``recorder``: the balance and the store under one lock
leave it whole?
where does it lie?                             ``storage``: in memory, in SQLite, in PostgreSQL
is it still what was written?                  ``verification``
how do I read it elsewhere?                    ``views``: rows, JSON, CSV, dp-accounting, Opacus
=============================================  ===================================================================

How one ``spend`` travels. ``Ledger.spend`` checks its arguments, also that they will be read back. ``Recorder.record``
takes the balance, up to date with what others wrote to the store, and asks ``Balance.admit``: the ledger's filter (the
first release fixes it, by ``filters.choice``) and those of the quotas around the scope say whether the release fits, or
``record.refusals`` why not. Then the store takes its own lock; if others were faster, the question is asked again. The
entry is counted in the balance (``Balance.apply``), linked to the hash of the one before, and is on disk when
``store.append`` returns. Only then does the caller get a row, and may draw noise.
"""

from accounting.ledger.ledger import Ledger
from accounting.ledger.record.entry_types import Mark, Row
from accounting.ledger.storage.witness import Witness
from accounting.ledger.views.other_accountants import from_dp_accounting, from_opacus, to_dp_accounting

__all__ = ["Ledger", "Mark", "Row", "Witness", "from_dp_accounting", "from_opacus", "to_dp_accounting"]
