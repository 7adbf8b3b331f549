"""Published tables, computed again: one file per table. ``dpkit reproduce`` runs them."""
