"""Models, one file each: stacks of structure and time stages, without distributed code."""

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
from strobe.models.gc_lstm import GCLSTM
from strobe.models.gcn import StaticGCN
from strobe.models.gconv_gru import GConvGRU
from strobe.models.mpnn_lstm import MPNNLSTM
from strobe.models.roland import ROLAND
from strobe.models.sage import GraphSAGE
from strobe.models.tgcn import TGCN
from strobe.models.wd_gcn import WDGCN
from strobe.options import check_options, option_types, short_repr

__all__ = [
    "DCRNN",
    "GATLSTM",
    "GCLSTM",
    "MODELS",
    "MPNNLSTM",
    "ROLAND",
    "TGCN",
    "WDGCN",
    "Block",
    "DySAT",
    "EvolveGCNH",
    "EvolveGCNO",
    "GConvGRU",
    "GraphSAGE",
    "Model",
    "ModelInfo",
    "Stack",
    "StaticGCN",
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
    "roland": ROLAND,
    "gconv-gru": GConvGRU,
    "gc-lstm": GCLSTM,
    "gcn": StaticGCN,
}
"""Models by name, for the command line and run directories."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One-line summary of a model, and its options with their defaults."""

    name: str
    summary: str
    options: dict[str, Any]


def describe_model(name: str) -> ModelInfo:
    """Describe a model from its docstring and signature."""
    model = _model(name)
    # The module's docstring describes its model; of several models in a module, each class its own.
    is_only = [other.__module__ for other in MODELS.values()].count(model.__module__) == 1
    doc = inspect.getdoc(sys.modules[model.__module__] if is_only else model) or ""
    options = {option: parameter.default for option, parameter in _parameters(model).items()}
    return ModelInfo(name=name, summary=doc.split("\n", 1)[0], options=options)


def make_model(name: str, inputs: int, /, **options: Any) -> Model:
    """Make a model by name.

    Args:
        name: a key of ``MODELS``.
        inputs: number of input features.
        options: keyword arguments of the model.

    Raises:
        UnknownNameError: if there is no such model or option.
        OptionError: if an option's value is invalid.
    """
    model = _model(name)
    check_options(name, options, option_types(model, "inputs"))
    try:
        return model(inputs, **options)
    except (RuntimeError, MemoryError, OverflowError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise OptionError(f"{name} cannot be made with {short_repr(options)}: {reason}") from error


def _model(name: str) -> type[Model]:
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return MODELS[name]


def _parameters(model: type[Model]) -> dict[str, inspect.Parameter]:
    """The options of a model: all parameters but ``inputs``, which the graph determines."""
    return {name: parameter for name, parameter in inspect.signature(model).parameters.items() if name != "inputs"}
