"""Models, one file each: stacks of a structure stage and a time stage, with no distributed code inside."""

from __future__ import annotations

import difflib
import inspect
import sys
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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
    parameters, hints = _parameters(model), get_type_hints(model.__init__)
    for option, value in options.items():
        if option not in parameters:
            near = difflib.get_close_matches(option, parameters, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise OptionError(f"{name} has no option {option!r}{hint} Its options: {', '.join(parameters) or 'none'}.")
        if not _fits(value, hints[option]):
            raise OptionError(f"{name}: {option} must be {_in_words(hints[option])}, not {value!r}")
    return model(inputs, **options)


def _model(name: str) -> type[Model]:
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return MODELS[name]


def _parameters(model: type[Model]) -> dict[str, inspect.Parameter]:
    """The parameters a user may set: all but the number of inputs, which the graph decides."""
    return {name: given for name, given in inspect.signature(model).parameters.items() if name != "inputs"}


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a name", NoneType: "nothing"}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that is asked for; hints without words of their own let everything pass."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint not in _WORDS:
        return True
    wide = int | float if hint is float else hint
    return isinstance(value, wide) and (hint is bool or not isinstance(value, bool))


def _in_words(hint: Any) -> str:
    if get_origin(hint) in (Literal, Union, UnionType):
        return " or ".join(repr(part) if get_origin(hint) is Literal else _in_words(part) for part in get_args(hint))
    return _WORDS.get(hint, str(hint))
