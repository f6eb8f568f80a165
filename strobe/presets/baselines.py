"""Baselines of the papers, each six visible choices: DGC, DyGNeX, DynaHB, DistDy."""

from __future__ import annotations

from strobe.batching import Batching, Groups, Vertices, Windows
from strobe.batching import Full as FullBatch
from strobe.exchange import Cached, Exchange, Halo, NoExchange, NoTimeExchange, Relay, Shuffle
from strobe.exchange.base import StructureExchange, TimeExchange
from strobe.placement import BySequence, BySnapshot, Hash, LoadAware, Metis, Placement, Replicated, SnapshotThenSequence
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def _plan(*, placement: Placement, batching: Batching, structure: StructureExchange, time: TimeExchange) -> Plan:
    """The choices of a baseline; on the other axes all are alike: full snapshots, batches in order, all-reduce."""
    return Plan(
        store=FullStore(),
        placement=placement,
        batching=batching,
        exchange=Exchange(structure=structure, time=time),
        schedule=InOrder(),
        sync=AllReduce(),
    )


def pss() -> Plan:
    """Whole snapshots, round robin over ranks; states follow (partitioning by spatial snapshots).

    A baseline of DGC (Chen et al., 2023).

    | axis      | choice                   | in the paper | faithful or changed                                   |
    |-----------|--------------------------|--------------|-------------------------------------------------------|
    | store     | full                     |              | not specified                                         |
    | placement | by-snapshot, round-robin | 2.1, 2.2.2   | faithful: equal numbers; their order is not specified |
    | batching  | full                     | 3            | faithful: an epoch is one step                        |
    | structure | none                     | 2.1          | faithful: spatial dependencies stay within a rank     |
    | time      | relay, 1 group           | 1, Figure 2a | faithful for recurrent encoders; others are shuffled  |
    | schedule  | in-order                 |              | not specified                                         |
    | sync      | all-reduce               | 3            | faithful: gradients are synchronized every epoch      |
    """
    return _plan(
        placement=BySnapshot(round_robin=True),
        batching=FullBatch(),
        structure=NoExchange(),
        time=Relay(pipeline_groups=1),
    )


def pts() -> Plan:
    """Whole sequences, equal numbers per rank; neighbor rows are exchanged (partitioning by temporal sequences).

    A baseline of DGC (Chen et al., 2023).

    | axis      | choice      | in the paper | faithful or changed                                     |
    |-----------|-------------|--------------|---------------------------------------------------------|
    | store     | full        |              | not specified                                           |
    | placement | by-sequence | 2.1, 2.2.2   | faithful: equal numbers; their order is not specified   |
    | batching  | full        | 3            | faithful: an epoch is one step                          |
    | structure | halo        | 1, Figure 2b | faithful; a row is sent once to each rank that reads it |
    | time      | none        | 1, Figure 2b | faithful: sequences are whole                           |
    | schedule  | in-order    |              | not specified                                           |
    | sync      | all-reduce  | 3            | faithful: gradients are synchronized every epoch        |
    """
    return _plan(placement=BySequence(), batching=FullBatch(), structure=Halo(), time=NoTimeExchange())


def pss_ts() -> Plan:
    """Whole snapshots, then whole sequences, a shuffle between (partitioning by snapshots and sequences).

    A baseline of DGC (Chen et al., 2023).

    | axis      | choice                 | in the paper | faithful or changed                                         |
    |-----------|------------------------|--------------|-------------------------------------------------------------|
    | store     | full                   |              | not specified                                               |
    | placement | snapshot-then-sequence | 2.1, 2.2.2   | faithful: equal numbers of both; the order is not specified |
    | batching  | full                   | 3            | faithful: an epoch is one step                              |
    | structure | none                   | 2.1          | faithful: snapshots are whole                               |
    | time      | shuffle                | 1, Figure 2c | faithful; results are sent back for the next block          |
    | schedule  | in-order               |              | not specified                                               |
    | sync      | all-reduce             | 3            | faithful: gradients are synchronized every epoch            |
    """
    return _plan(placement=SnapshotThenSequence(), batching=FullBatch(), structure=NoExchange(), time=Shuffle())


def psg(size: int = 4, stride: int | None = 1) -> Plan:
    """Groups of ``size`` snapshots, each computed whole by one rank (partitioning by snapshot groups).

    A baseline of DyGNeX. Groups begin ``stride`` snapshots apart; their last ``stride`` are the targets.

    | axis      | choice     | in the paper | faithful or changed                                         |
    |-----------|------------|--------------|-------------------------------------------------------------|
    | store     | full       |              | not specified                                               |
    | placement | replicated | B, Figure 9  | faithful: a rank reads the snapshots of its groups          |
    | batching  | groups     | 2, 5.1       | faithful: of 4, independent; one target each is our reading |
    | structure | none       | B, Figure 9  | faithful: no communication                                  |
    | time      | none       | B, Figure 9  | faithful: no communication                                  |
    | schedule  | in-order   | 5.1          | faithful: a group per rank and step                         |
    | sync      | all-reduce | 4.1          | faithful                                                    |
    """
    return _plan(
        placement=Replicated(), batching=Groups(size=size, stride=stride), structure=NoExchange(), time=NoTimeExchange()
    )


def dbos(size: int = 8) -> Plan:
    """A step per ``size`` snapshots, vertices in parts (distributed batches of snapshots).

    A baseline of DynaHB, there called Dist-Batch-of-Snapshot.

    | axis      | choice     | in the paper | faithful or changed                                        |
    |-----------|------------|--------------|------------------------------------------------------------|
    | store     | full       |              | not specified                                              |
    | placement | metis      | 6.1          | partition not specified; 4.2 compares with METIS           |
    | batching  | windows    | 6.1          | changed: windows do not slide; paper: 20% of all snapshots |
    | structure | halo       | 6.1          | not specified; ours is exact                               |
    | time      | none       |              | sequences are whole                                        |
    | schedule  | in-order   |              | not specified                                              |
    | sync      | all-reduce | 6.1          | not specified; ours is exact                               |
    """
    return _plan(placement=Metis(), batching=Windows(size=size), structure=Halo(), time=NoTimeExchange())


def dbov(size: int = 10_000) -> Plan:
    """A step per ``size`` vertices with all their snapshots (distributed batches of vertices).

    A baseline of DynaHB, there called Dist-Batch-of-Vertex.

    | axis      | choice     | in the paper | faithful or changed                                     |
    |-----------|------------|--------------|---------------------------------------------------------|
    | store     | full       |              | not specified                                           |
    | placement | metis      | 6.1          | partition not specified; 4.2 compares with METIS        |
    | batching  | vertices   | 6.1          | faithful: complete snapshots; paper: 5% of all vertices |
    | structure | halo       | 6.1          | not specified                                           |
    | time      | none       |              | sequences are whole                                     |
    | schedule  | in-order   |              | not specified                                           |
    | sync      | all-reduce | 6.1          | not specified                                           |
    """
    return _plan(placement=Metis(), batching=Vertices(size=size), structure=Halo(), time=NoTimeExchange())


def bvr(size: int = 10_000, hops: int | None = None, memory: float = 1024.0) -> Plan:
    """A step per ``size`` vertices of each rank with all their snapshots, prefetched and cached.

    A baseline of DynaHB, there called DBoV-Reservoir. ``hops``: see preset dynahb. ``memory``: MiB for cached batches.

    | axis      | choice     | in the paper | faithful or changed                                   |
    |-----------|------------|--------------|-------------------------------------------------------|
    | store     | full       |              | not specified                                         |
    | placement | load-aware | 4.2          | not specified; as in DynaHB                           |
    | batching  | vertices   | 6.1, 5.2     | faithful: from a reservoir; paper: 5% of all vertices |
    | structure | cached     | 4.1          | not specified; as in DynaHB                           |
    | time      | none       |              | sequences are whole                                   |
    | schedule  | in-order   |              | not specified                                         |
    | sync      | all-reduce | 6.1          | not specified                                         |
    """
    return _plan(
        placement=LoadAware(),
        batching=Vertices(size=size, reservoir=memory),
        structure=Cached(hops=hops),
        time=NoTimeExchange(),
    )


def metis() -> Plan:
    """Vertices in parts of METIS on the union of all snapshots.

    A baseline of DistDy (Zhang and Wu), which partitions snapshots as they arrive; here all snapshots are known from
    the start.

    | axis      | choice     | in the paper | faithful or changed                                                  |
    |-----------|------------|--------------|----------------------------------------------------------------------|
    | store     | full       |              | not specified                                                        |
    | placement | metis      | 5.1          | faithful; weights not specified: ours are load and time              |
    | batching  | full       | 5.1          | changed: the paper samples neighbors in windows of 4 snapshots       |
    | structure | halo       | 5.1          | changed: rows of every layer for all cut edges, not sampled features |
    | time      | none       |              | sequences are whole                                                  |
    | schedule  | in-order   |              | not specified                                                        |
    | sync      | all-reduce | 5.1          | changed: the paper has a parameter server                            |
    """
    return _plan(placement=Metis(), batching=FullBatch(), structure=Halo(), time=NoTimeExchange())


def hash_nodes() -> Plan:
    """Vertices on ranks by a hash of their id, independent of edges.

    A baseline of DistDy (Zhang and Wu), which partitions snapshots as they arrive; here all snapshots are known from
    the start.

    | axis      | choice     | in the paper | faithful or changed                                                  |
    |-----------|------------|--------------|----------------------------------------------------------------------|
    | store     | full       |              | not specified                                                        |
    | placement | hash       | 5.1          | faithful                                                             |
    | batching  | full       | 5.1          | changed: the paper samples neighbors in windows of 4 snapshots       |
    | structure | halo       | 5.1          | changed: rows of every layer for all cut edges, not sampled features |
    | time      | none       |              | sequences are whole                                                  |
    | schedule  | in-order   |              | not specified                                                        |
    | sync      | all-reduce | 5.1          | changed: the paper has a parameter server                            |
    """
    return _plan(placement=Hash(), batching=FullBatch(), structure=Halo(), time=NoTimeExchange())
