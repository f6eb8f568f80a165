"""Split of snapshots into training, validation and test, in order of time."""

from __future__ import annotations

from dataclasses import dataclass

from strobe.errors import InputError, OptionError
from strobe.format import pluralize

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Training, validation and test snapshots, consecutive in time: states are carried through all parts.

    The last ``gap`` snapshots of training and of validation are read but have no examples, because their targets become
    known only after the next part begins. So all that is fitted, trained or selected on one part is known when the next
    part is predicted.
    """

    train: range
    validation: range
    test: range
    gap: int = 0

    @classmethod
    def by_time(cls, samples: int, train: float = 0.7, validation: float = 0.1, gap: int = 0) -> Split:
        """Split the first ``samples`` snapshots by shares, or by numbers of snapshots from 1 on.

        Boundaries are rounded down: 29 snapshots at 0.7 and 0.1 become 20, 3 and 6. Each part has at least one
        snapshot with examples; ``gap`` snapshots follow those of training and those of validation.
        """
        check_shares(train, validation)
        with_examples = samples - 2 * gap
        if with_examples < len(PARTS):
            apart = f", {pluralize(gap, 'snapshot')} apart" if gap else ""
            raise InputError(
                f"{max(samples, 0)} snapshots have targets, at least {len(PARTS) + 2 * gap} are needed: one each to "
                f"train, to validate and to test{apart}. Cut the data into shorter snapshots, or look less far ahead."
            )
        first, second = split_points(with_examples, train, validation)
        first, second = first + gap, second + 2 * gap
        return cls(range(first), range(first, second), range(second, samples), gap)

    def part(self, name: str) -> range:
        """The snapshots of a part."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    def with_examples(self, name: str) -> range:
        """The snapshots of a part that have examples."""
        part = self.part(name)
        return part if name == "test" else part[: max(len(part) - self.gap, 0)]

    def part_of(self, t: int) -> str | None:
        """The name of the part in which snapshot t has examples, if any."""
        return next((name for name in PARTS if t in self.with_examples(name)), None)


def check_shares(train: float, validation: float) -> None:
    """Raise OptionError for shares that leave a part empty."""
    if _are_counts(train, validation):
        return
    if not (0 < train < 1 and 0 < validation < 1 and train + validation < 1):
        raise OptionError(
            f"training and validation must be positive shares that leave something for testing, or both whole numbers "
            f"of snapshots, not {train:g} and {validation:g}"
        )


def _are_counts(train: float, validation: float) -> bool:
    return all(value >= 1 and float(value).is_integer() for value in (train, validation))


def split_points(number: int, train: float, validation: float) -> tuple[int, int]:
    """Where validation and test begin among ``number`` items, at least 3; each part gets at least one."""
    if _are_counts(train, validation):
        if train + validation >= number:
            raise InputError(
                f"{train:g} snapshots to train and {validation:g} to validate leave none of {number} to test"
            )
        return int(train), int(train + validation)
    # 0.7 + 0.1 is a little below 0.8: the 1e-9 keeps it from being rounded down.
    first = min(max(int(number * train + 1e-9), 1), number - 2)
    second = min(max(int(number * (train + validation) + 1e-9), first + 1), number - 1)
    return first, second
