"""A private bandit in service: workers that decide, one learner that releases, a database between them.

The public half of a policy is a value (:class:`dpbandits.Released`), so any number of workers choose with it. What they
decide, and the rewards that come back, are rows of one database; the one learner takes them in, in order, and releases.

================== ====================================================================================
``config.py``      what ``run.toml`` may say, and the policy that it describes (``toml.py``: strict reading)
``clients.py``     who may ask for what
``supervise.py``   the processes: who starts them, and starts them again (``__main__.py``: one of them)
``desk.py``        one run, as a worker serves it
``app.py``         how a worker receives a request: its size, its token, its time (``metrics.py``: counts, spans)
``edge.py``        what strangers may hold before they have shown a token
``endpoints.py``   what it answers to each
``messages.py``    how requests and answers look (``openapi.py``: the schema and its page)
``answers.py``     how all other answers look
``tickets.py``     decisions in the hands of whoever asked, until they are activated
``personalizer.py`` the wire of a retired service: rank, reward, activate (``events.py``: decisions by its names)
``writer.py``      how a worker's requests share one commit, and what happens where the database is away
``store.py``       all statements, and why no reward is lost or counted twice (``tables.py``: what they are made of)
``lineage.py``     why state that went back charges nobody for another: ids, the chain of decisions, the learner's trail
``contract.py``    what a run was begun with, and stays
``admin.py``       the figures of all processes, for monitoring
``operate.py``     what an operator does: init, doctor, restore, close, erase
``database.py``    in what SQLite and PostgreSQL differ
``learner.py``     from rows to releases: one process, one policy
``trial.py``       what is an experiment's own: its end, persons with one decision, results
``apprentice.py``  what the bandit would have got where it only watches
``client.py``      a client that can be copied
``demo.py``        all of it with a simulated crowd
``many/``          many runs in one service: their file, what a worker answers, a pool of learners
================== ====================================================================================

One decision travels so: ``app`` reads it as ``messages`` says, ``endpoints`` chooses by the newest release, ``writer``
has ``store`` write it down with others in one transaction, and the answer goes out after the commit. A reward goes the
same way. The ``learner`` reads both in the order in which they came, its policy learns them, and a release goes back by
``store``, where each worker's ``writer`` finds it.

Needs the extra ``serve``.
"""

from dpbandits.serve.config import Config

__all__ = ["Config"]
