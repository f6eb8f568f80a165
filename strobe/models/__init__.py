"""Models, one file each: stacks of a structure stage and a time stage, with no distributed code inside."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any

from strobe.errors import OptionError, UnknownNameError
from strobe.models.base import Block, Model, Stack
from strobe.models.dcrnn import DCRNN
from strobe.models.dysat import DySAT
from strobe.models.evolvegcn import EvolveGCNH, EvolveGCNO
from strobe.models.gat_lstm import GATLSTM
from strobe.models.mpnn_lstm import MPNNLSTM
from strobe.models.sage import GraphSAGE
from strobe.models.tgcn import TGCN
from strobe.models.wd_gcn import WDGCN
from strobe.options import check_options, hints_of, short

__all__ = [
    "DCRNN",
    "GATLSTM",
    "MODELS",
    "MPNNLSTM",
    "TGCN",
    "WDGCN",
    "Block",
    "DySAT",
    "EvolveGCNH",
    "EvolveGCNO",
    "GraphSAGE",
    "Model",
    "ModelInfo",
    "Stack",
    "describe_model",
    "make_model",
]

MODELS: dict[str, type[Model]] = {
    "tgcn": TGCN,
    "dcrnn": DCRNN,
    "evolvegcn-o": EvolveGCNO,
    "evolvegcn-h": EvolveGCNH,
    "wd-gcn": WDGCN,
    "gat-lstm": GATLSTM,
    "dysat": DySAT,
    "mpnn-lstm": MPNNLSTM,
    "sage": GraphSAGE,
}
"""Names for the command line and for run directories."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What people need to choose a model: one line about it, and its options with their defaults."""

    name: str
    summary: str
    options: dict[str, Any]


def describe_model(name: str) -> ModelInfo:
    """What the model of that name is and what can be set, from its own documentation and signature."""
    model = _model(name)
    # A file tells of its model; where it has several, each tells of itself.
    alone = [other.__module__ for other in MODELS.values()].count(model.__module__) == 1
    written = inspect.getdoc(sys.modules[model.__module__] if alone else model) or ""
    options = {option: parameter.default for option, parameter in _parameters(model).items()}
    return ModelInfo(name=name, summary=written.split("\n", 1)[0], options=options)


def make_model(name: str, inputs: int, /, **options: Any) -> Model:
    """The model of that name for so many input features; options are its keyword arguments."""
    model = _model(name)
    check_options(name, options, hints_of(model, "inputs"))
    try:
        return model(inputs, **options)
    except (RuntimeError, MemoryError, OverflowError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise OptionError(f"{name} cannot be made with {short(options)}: {why}") from error


def _model(name: str) -> type[Model]:
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return MODELS[name]


def _parameters(model: type[Model]) -> dict[str, inspect.Parameter]:
    """The parameters a user may set: all but the number of inputs, which the graph decides."""
    return {name: given for name, given in inspect.signature(model).parameters.items() if name != "inputs"}
