"""The version is the same wherever it is written, and kernels of another release are not taken for this one's."""

import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tensorwise.space.config import Config
from tensorwise.sparse import outcomes, table
from tensorwise.version import __version__

ROOT: Final = Path(__file__).parents[2]


def project(folder: Path = ROOT) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def test_the_version_is_written_alike_everywhere() -> None:
    models = project(ROOT / "models")
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    released = re.search(
        r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    recipes = (ROOT / "packaging" / "conda").glob("*/recipe.yaml")
    found = {
        "pyproject.toml": project()["version"],
        "models/pyproject.toml": models["version"],
        "kernels/pyproject.toml": project(ROOT / "kernels")["version"],
        "CITATION.cff": citation and citation[1],
        "CHANGELOG.md": released and released[1],
        **{str(path.parent.name): _conda_version(path) for path in recipes},
    }
    assert set(found.values()) == {__version__}, found
    assert len(found) == 7


def _conda_version(path: Path) -> str | None:
    found = re.search(r'^  version: "(.+)"$', path.read_text(), re.MULTILINE)
    return found and found[1]


def test_models_need_this_minor_release() -> None:
    """A model of an earlier release is read where its features are known; the package asks for the code that was tested."""
    minor = ".".join(__version__.split(".")[:2])
    assert project(ROOT / "models")["dependencies"] == [f"tensorwise>={minor}"]
    for card in (ROOT / "models" / "tensorwise_models").glob("*/*.json"):
        assert json.loads(card.read_text())["version"]  # which release trained it; not compared


def test_compiled_kernels_need_exactly_this_release() -> None:
    assert project(ROOT / "kernels")["dependencies"] == [f"tensorwise=={__version__}"]


def test_a_table_of_kernels_belongs_to_one_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an installer sets all times alike, two releases may have files of equal size and time."""
    table._digest.cache_clear()
    here = table.table_path("products")
    monkeypatch.setattr(table, "__version__", "0.1.0")
    table._digest.cache_clear()
    assert table.table_path("products") != here
    table._digest.cache_clear()
    monkeypatch.undo()
    assert table.table_path("products") == here


@pytest.mark.parametrize(("version", "num_known"), [(__version__, 1), ("0.1.0", None)])
def test_ratios_of_another_release_are_measured_again(version: str, num_known: int | None) -> None:
    """A ratio compares two pieces of our code, which a release may change; its record stays in the store."""
    config = Config({"tile": 8})
    facts = {"version": version, outcomes.IN_PLACE: 0.5, outcomes.SEARCHED: 10.0}
    record: Any = SimpleNamespace(
        ok=True, config=config, provenance=facts, has_fact=lambda *_: False, is_isolated=False
    )
    space: Any = SimpleNamespace(
        default=lambda work: config,
        migrate=lambda config, work: config,
        program=lambda work, config: SimpleNamespace(remainder=None),
    )
    work: Any = None
    found = outcomes.known_outcome([record], work, space, budget_s=1.0)
    assert (None if found is None else len(found)) == num_known
