"""Many runs in one service, each of which is what it is alone.

================ =======================================================================================
``group.py``     what the file of a group says, its folder, and how a run begins in it
``front.py``     what a worker answers about all runs, and which run a request is for
``pool.py``      the learners of all runs, in a few processes
================ =======================================================================================
"""
