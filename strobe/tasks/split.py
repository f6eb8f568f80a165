"""Time cut into training, validation and test: the future is never known before it happens."""

from __future__ import annotations

from dataclasses import dataclass

from strobe.errors import InputError, OptionError

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Snapshots a model reads and is asked about, in order of time: first those it learns from, last those it is
    judged by. A state carried from one part into the next is allowed, as it would be in use; learning is not.

    Parts are cut by the snapshots that are read. With targets several snapshots ahead, the last training targets are
    later than the first test snapshots read; no target of a part is ever one of another's."""

    train: range
    validation: range
    test: range

    @classmethod
    def in_time(cls, samples: int, train: float = 0.7, validation: float = 0.1) -> Split:
        """The first share of ``samples`` snapshots, the next, and the rest; each has at least one.

        Boundaries are rounded down: 29 snapshots at 0.7 and 0.1 become 20, 3 and 6.
        """
        check_shares(train, validation)
        if samples < len(PARTS):
            raise InputError(
                f"{max(samples, 0)} snapshots can be asked about, at least {len(PARTS)} are needed: one each to train, "
                f"to validate and to test. Cut the data into shorter snapshots, or look less far ahead."
            )
        first, second = boundaries(samples, train, validation)
        return cls(range(first), range(first, second), range(second, samples))

    def part(self, name: str) -> range:
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    def part_of(self, t: int) -> str | None:
        """The name of the part snapshot t belongs to, if any."""
        return next((name for name in PARTS if t in self.part(name)), None)


def check_shares(train: float, validation: float) -> None:
    """Refuses shares that leave one of the parts nothing."""
    if not (0 < train < 1 and 0 < validation < 1 and train + validation < 1):
        raise OptionError(
            f"shares of training and validation must be positive and leave something for testing, "
            f"not {train:g} and {validation:g}"
        )


def boundaries(number: int, train: float, validation: float) -> tuple[int, int]:
    """Where validation and where testing begin among so many things, at least three; each part gets one or more."""
    # Shares as 0.7 + 0.1 are a little below what they stand for: what is meant is not rounded away.
    first = min(max(int(number * train + 1e-9), 1), number - 2)
    second = min(max(int(number * (train + validation) + 1e-9), first + 1), number - 1)
    return first, second
