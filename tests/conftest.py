"""Settings of the whole suite."""

from hypothesis import settings
from postgres import new, postgres, storage  # noqa: F401 (fixtures of all tests)

# how long an example takes says nothing on a busy machine; the suite's total is what is held
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
