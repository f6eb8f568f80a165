"""Messages between ranks: the only folder that knows torch.distributed."""

from strobe.comm.base import NO_RANK, Comm, CommError, ControlChannel, MessagePipeline, SingleRankComm, Work
from strobe.comm.launch.launcher import RankError, run_ranks
from strobe.comm.ledger import Ledger

__all__ = [
    "NO_RANK",
    "Comm",
    "CommError",
    "ControlChannel",
    "Ledger",
    "MessagePipeline",
    "RankError",
    "SingleRankComm",
    "Work",
    "run_ranks",
]
