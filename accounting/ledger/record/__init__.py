"""What a ledger records, and what the entries say together: its balance, from which it decides.

``entry_types`` are the kinds of entries, ``entry_json`` and ``release_json`` how they are written, ``hash_chain`` how
each holds on to the one before. ``balance`` is what all of them say: ``release_counts`` per scope, the filter,
``quotas`` and marks; and whether one more may follow. ``refusals`` are the words where it may not.
"""
