"""How noise is made and used: randomness, exact samplers, geometry, mechanisms, continual release, optimizers.

Import the part that you need (``from dpkit.continual import BufferedToeplitz``); nothing is loaded before. Every
mechanism states its sensitivity and its adjacency, describes what it releases to ``accounting``, and is
charged to a ledger before its noise is drawn.
"""
