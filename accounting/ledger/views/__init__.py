"""How a ledger is shown and handed on.

``rows`` are the releases with what became of them, for programs and notebooks; ``json_and_csv`` the whole ledger as
text; ``other_accountants`` the same releases as events of dp-accounting, and the history of an Opacus accountant as a
release.
"""
