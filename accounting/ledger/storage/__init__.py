"""Where the entries of a ledger are kept, so that neither a crash nor another process loses one.

``store`` says what every such place can do, and has the one in memory. ``database`` is the chain in two tables of a
database, and all that is asked of them; ``sqlite`` opens one in a file, which ``new_file`` makes whole or not at all,
and ``postgresql`` one on a server.
"""
