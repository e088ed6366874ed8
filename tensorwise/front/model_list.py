"""The models that are installed or in a folder, as a table: cost models and latency models alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tensorwise.errors import InputError
from tensorwise.model import finding
from tensorwise.model.latency import LATENCY
from tensorwise.model.model import DESCRIPTION, describe

READERS: Final = {DESCRIPTION: describe, LATENCY.files[0]: LATENCY.describe}
"""Name of the description of a saved model -> how it is read."""
HEADINGS: Final = ("model", "kind", "operations", "devices", "trained", "size", "file")


def installed() -> list[Path]:
    """Return the descriptions of all models that tuning and prediction find: this user's models, then bundled ones."""
    from tensorwise.front.networks import BUNDLED, latency_model_folder

    name = LATENCY.files[0]
    latency = [latency_model_folder() / name, *(root / BUNDLED / name for root in finding.bundled_folders())]
    return [
        *(folder / DESCRIPTION for folder in finding.find_models()),
        *(path for path in latency if path.is_file()),
    ]


def inside(folder: Path) -> list[Path]:
    """Return the descriptions of the model in ``folder``, or of the models in the folders below it."""
    here = [folder / name for name in READERS if (folder / name).is_file()]
    return here or sorted(path for name in READERS for path in folder.glob(f"*/{name}"))


def facts(description: Path) -> dict[str, Any]:
    """Return what is known of a saved model: kind, version, what it predicts, devices, operations, bytes and card.

    Args:
        description: the JSON file of the model.

    Raises:
        InputError: the file is malformed.
    """
    folder = description.parent
    found = READERS[description.name](folder)
    card = found.get("card")
    about: Mapping[str, Any] = card if isinstance(card, Mapping) else {}
    try:
        devices, operations = _scope(found, about)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{description} does not describe a model; save the model again") from error
    return {
        "model": str(folder), "kind": found["kind"], "version": found.get("version"),
        "returns": found.get("returns", "seconds"), "operations": operations, "devices": devices,
        "size_bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        "file": str(description), "card": card,
    }  # fmt: skip


def _scope(found: Mapping[str, Any], card: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the devices and the operations that a model is for."""
    if found["kind"] == "latency":
        return [str(one["name"]) for one in found["devices"]], ["tensor programs of networks"]
    operations = [str(card["op"])] if card.get("op") else []
    if card.get("device"):
        return [str(card["device"])], operations
    return [str(name) for name in (card.get("data") or {}).get("hosts", [])], operations


def table(models: list[dict[str, Any]]) -> str:
    """Return a table for a terminal with a row for each model, columns aligned to the left."""
    rows = [HEADINGS, *map(_row, models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    # An instruction set with a number of threads on a processor: there are too many to list.
    settings = [name for name in one["devices"] if name.startswith("tvm-")]
    devices = [name for name in one["devices"] if name not in settings]
    if settings:
        devices.append(f"{len(settings)} CPU settings" if len(settings) > 1 else settings[0])
    card = one["card"] if isinstance(one["card"], Mapping) else {}
    if card.get("threads"):
        devices.append(f"{card['threads']} threads")
    trained = str(card.get("date", "no card"))
    for key, what in (("calibration", "calibrated"), ("adapted", "adapted")):
        if key in card:
            trained += f", {what} {card[key]['date']}"
    return (
        Path(one["model"]).name, str(one["kind"]), ", ".join(one["operations"]) or "-", "; ".join(devices) or "-",
        trained, f"{one['size_bytes'] / 1e6:.1f} MB", one["file"],
    )  # fmt: skip
