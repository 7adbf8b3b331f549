"""Compiled modules are kept, also where Python is told to keep none, as in many containers.

Else every process that a test starts compiles the packages again, and each run the assertions of all tests. Imported
before what is to be kept.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
