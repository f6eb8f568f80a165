"""Tests of Strobe. The environment of all of them is set here, before torch and numpy are loaded."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by numpy and torch once, here and in programs that tests start

# Compiled modules are cached also where the environment says otherwise: without, each of the processes that tests start
# compiles Strobe (1 s), and each worker rewrites the assertions of all tests (14 s).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
