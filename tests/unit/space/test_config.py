"""Config: plain values, one text, no mutation."""

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.space.config import Config, as_value, show


def test_equality_and_id_ignore_the_order_of_names() -> None:
    a, b = Config({"x": 1, "y": "u"}), Config({"y": "u", "x": 1})
    assert a == b
    assert hash(a) == hash(b)
    assert a.id == b.id
    assert len({a, b}) == 1


def test_true_is_not_one() -> None:
    assert Config({"x": True}) != Config({"x": 1})
    assert Config({"x": False}) != Config({"x": None})


def test_numpy_scalars_and_lists_become_plain() -> None:
    config = Config({"n": np.int64(4), "f": np.bool_(True), "s": np.str_("a"), "p": ["i", np.str_("k")]})
    assert [type(value) for value in config.values()] == [int, bool, str, tuple]
    assert Config.parse(config.text) == config


@pytest.mark.parametrize("bad", [1.5, {"a": 1}, ["i", 2], b"x", object()])
def test_other_types_are_refused_by_name(bad: object) -> None:
    with pytest.raises(InputError, match="split"):
        as_value("split", bad)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1.5}', '{"a": {"b": 1}}', "null", "[" * 5000])
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Config.parse(text)


def test_immutable() -> None:
    config = Config({"x": 1})
    with pytest.raises(AttributeError):
        config.choices = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        config["x"] = 2  # type: ignore[index]


def test_later_changes_of_the_source_do_not_show() -> None:
    source = {"x": 1}
    config = Config(source)
    source["x"] = 2
    assert config["x"] == 1


def test_str_is_one_line_without_inactive_choices() -> None:
    assert str(Config({"a": 4, "b": None, "c": True, "d": ("i", "k")})) == "a=4 c=yes d=i,k"
    assert show(None) == "inactive"
