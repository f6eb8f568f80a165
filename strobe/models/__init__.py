"""Models, one file each: stacks of a structure stage and a time stage, with no distributed code inside."""

from __future__ import annotations

from typing import Any

from torch import nn

from strobe.errors import OptionError, UnknownNameError
from strobe.models.base import Block, Model, Stack
from strobe.models.tgcn import TGCN

__all__ = ["MODELS", "TGCN", "Block", "Model", "Stack", "make_model"]

MODELS: dict[str, type[Model]] = {
    "tgcn": TGCN,
}
"""Names for the command line and for run directories."""


def make_model(name: str, inputs: int, **options: Any) -> nn.Module:
    """The model of that name for so many input features; options are its keyword arguments."""
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    try:
        return MODELS[name](inputs, **options)
    except TypeError as error:
        raise OptionError(f"{name}: {error}") from None
