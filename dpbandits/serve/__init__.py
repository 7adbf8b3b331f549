"""A private bandit in service: workers that decide, one learner that releases, a database between them.

The public half of a policy is a value (:class:`dpbandits.Released`), so any number of workers choose with it. What they
decide, and the rewards that come back, are rows of one SQLite file; the one learner takes them in, in order, and
releases. :mod:`dpbandits.serve.store` says what is durable when, and why no reward is lost or counted twice.

Needs the extra ``serve``.
"""

from dpbandits.serve.config import Config

__all__ = ["Config"]
