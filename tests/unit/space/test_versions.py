"""A space whose one choice is which implementation of a function is called."""

from typing import Any

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.space.versions import Version, Versions


def plus(a: float, b: float) -> float:
    return a + b


def space(*versions: Version) -> Versions:
    chosen = versions or (Version("plus", plus), Version("sum", lambda a, b: sum((a, b))))
    return Versions.of("add", chosen, lambda a, b: (a, b), {"a": "1", "b": "1"})


def test_every_config_names_a_version_the_first_is_the_default() -> None:
    of = space()
    call: Any = of.call(1, 2)
    assert of.configs == (Config({"version": "plus"}), Config({"version": "sum"}))
    assert of.default(call) == of.configs[0]
    assert list(of.enumerate(call)) == list(of.configs)
    assert [of.program(call, config).name for config in of.configs] == ["plus", "sum"]
    assert of.op == "add"


def test_a_call_is_known_by_its_features() -> None:
    call = space().call(1, 2.5)
    assert call.features == {"a": 1.0, "b": 2.5}
    assert call.arguments == (1, 2.5)
    assert call.id == Call("add", {"a": 1.0, "b": 2.5}).id
    assert call.id != Call("add", {"a": 2.5, "b": 1.0}).id
    assert call.id != Call("sub", {"a": 1.0, "b": 2.5}).id


def test_arguments_are_brought_and_the_result_is_fetched() -> None:
    steps: list[str] = []

    def bring(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
        steps.append("bring")
        return np.array(a), np.array(b)

    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        steps.append("add")
        return np.add(a, b)

    def fetch(result: np.ndarray) -> float:
        steps.append("fetch")
        return float(result)

    version = Version("there", add, "gpu", bring, fetch)
    assert version.whole(1.0, 2.0) == 3.0
    assert steps == ["bring", "add", "fetch"]
    assert version.moves
    assert Version("there", add, bring=bring).whole(1.0, 2.0) == 3.0
    assert Version("here", plus).whole is plus


def test_what_is_malformed_is_refused() -> None:
    with pytest.raises(InputError, match="must be callable"):
        Version("text", "blas")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a version and a feature"):
        Versions.of("add", [], lambda a: (a,), {"a": "1"})
    with pytest.raises(InputError, match="distinct"):
        space(Version("plus", plus), Version("plus", plus))
    with pytest.raises(InputError, match=r"has no version 'blas'; it has plus, sum"):
        space().program(None, Config({"version": "blas"}))
    two = Versions.of("add", [Version("plus", plus)], lambda *arguments: arguments, {"a": "1", "b": "1"})
    with pytest.raises(InputError, match="was given 1 numbers"):
        two.call(1)
    with pytest.raises(InputError, match="must be numbers"):
        two.call(1, "x")
