"""Synthetic graphs: seeded, in memory or streamed to disk, one value with parameters per kind.

``Social().write()`` is a graph in memory; ``with DiskSink(path) as sink: Social(nodes=20_000_000).write(sink)`` writes
one of any size with little memory. On the command line: ``strobe data make``.
"""

from strobe.graph.synthetic.base import Generator
from strobe.graph.synthetic.papers import SIZES, Changing, Growth, Uneven
from strobe.graph.synthetic.shapes import SHAPES, PublishedShape
from strobe.graph.synthetic.social import Social

__all__ = ["SHAPES", "SIZES", "Changing", "Generator", "Growth", "PublishedShape", "Social", "Uneven"]
