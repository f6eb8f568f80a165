"""Python imports this before anything else, in ranks that find it on their path."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("disturb", Path(__file__).parents[1] / "disturb.py")
assert _spec is not None
assert _spec.loader is not None
_disturb = importlib.util.module_from_spec(_spec)
sys.modules["disturb"] = _disturb
_spec.loader.exec_module(_disturb)
_disturb.disturb_rank()
