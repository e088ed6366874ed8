"""Checkpoints of trainings: weights, others such as the best so far, Adam's moments and JSON in one safetensors file."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.torch_extra import torch
from tensorwise.reading import WRONG_DATA, parse_json
from tensorwise.writing import replacing

_MOMENTS: Final = ("step", "exp_avg", "exp_avg_sq")


def write_checkpoint(
    path: Path,
    weights: Mapping[str, Any],
    adam: Any,
    beside: Mapping[str, Mapping[str, np.ndarray]],
    state: Mapping[str, Any],
) -> None:
    """Replace the checkpoint as a whole: one file, so that a kill leaves the old one or the new one.

    Args:
        weights: parameters by name; adam: their optimiser; beside: other arrays by name, such as the ``best`` weights.
        state: JSON-able; ``fingerprint`` says which training it is.

    Raises:
        InputError: it cannot be written.
    """
    from safetensors.numpy import save

    arrays = {f"now.{name}": array_of(weight) for name, weight in weights.items()}
    arrays |= {f"{which}.{name}": array for which, of in beside.items() for name, array in of.items()}
    for name, weight in weights.items():
        for moment, tensor in adam.state.get(weight, {}).items():
            arrays[f"adam.{moment}.{name}"] = array_of(tensor)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(save(arrays, metadata={"training": json.dumps(dict(state), allow_nan=False)}))
    except OSError as error:
        raise InputError(f"the checkpoint {path} cannot be written: {error.strerror or error}") from error


@contextmanager
def reading_checkpoint(
    path: Path, fingerprint: str
) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Return a context with the state and the arrays of a checkpoint, from which a training is resumed.

    Raises:
        InputError: it is of another training or damaged, which may also show while it is taken up.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            state = parse_json((file.metadata() or {})["training"], f"{path}: no checkpoint")
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (no mapping)
        if state["fingerprint"] != fingerprint:
            raise InputError(
                f"the checkpoint {path} belongs to a training with other records, settings or network; "
                "remove it, or name another file"
            )
        yield state, arrays
    except (OSError, SafetensorError, RuntimeError, *WRONG_DATA) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no checkpoint, or damaged: {error}; remove it to start anew") from error


def restore(weights: Mapping[str, Any], adam: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Set weights and moments to those of a checkpoint; raises KeyError or RuntimeError where they do not fit."""
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(torch.from_numpy(arrays[f"now.{name}"]))
            if f"adam.step.{name}" in arrays:  # else no step has asked for the weight yet
                adam.state[weight] = {
                    moment: torch.from_numpy(arrays[f"adam.{moment}.{name}"].copy()).to(weight.device)
                    for moment in _MOMENTS
                }


def array_of(tensor: Any) -> np.ndarray:
    """Return a copy of what a tensor of any device holds."""
    array: np.ndarray = tensor.detach().cpu().numpy().copy()
    return array
