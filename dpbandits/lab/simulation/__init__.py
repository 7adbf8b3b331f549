"""Playing policies against environments, over seeds and processors, and what was found.

===============  ===================================================================================
:mod:`.simulate` ``simulate(policies, environment, rounds=, seeds=)``
:mod:`.results`  ``Results``: tables, files and plots of all runs
:mod:`.runs`     ``Run``: one policy on one seed
:mod:`.play`     what every process does: one run
:mod:`.workers`  one after the other, over processes, or by joblib
:mod:`.runlog`   the file in which runs are kept as they end, so that a simulation can go on
:mod:`.files`    results as JSON, CSV and Parquet
:mod:`.plots`    regret and reward over time and against ε; prices
===============  ===================================================================================
"""
