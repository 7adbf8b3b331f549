"""Where policies are tried: nothing here is part of a policy, and no policy imports it.

=====================  ==============================================================================================
:mod:`.environments`   worlds to play in: simulated models, real tables and ratings, a log of one's own
:mod:`.simulation`     ``simulate`` and ``Results``: policies against a world, over seeds and processors
:mod:`.evaluate`       what another policy would have earned, from a log of choices
:mod:`.price`          ``price_of_privacy``: what each ε will cost on given data (:mod:`.price_table` is its answer,
                       :mod:`.price_policies` says what it plays)
:mod:`.tables`         the tables that people bring, read with complaints that name the row
=====================  ==============================================================================================
"""
