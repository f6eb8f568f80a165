"""Messages between ranks: the only folder that knows torch.distributed."""

from strobe.comm.base import Alone, Arrival, Comm, CommError, Line
from strobe.comm.launch import RankError, run_ranks
from strobe.comm.ledger import Ledger

__all__ = ["Alone", "Arrival", "Comm", "CommError", "Ledger", "Line", "RankError", "run_ranks"]
