"""Table and scoring: configs become numbers, embeddings and scores, alike in NumPy and torch."""

import json

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.features.nest import ProgramNest
from tensorwise.model.scoring import EMBEDDING, embed, initial, score, shapes
from tensorwise.model.table import Encoded, Table
from tensorwise.program.workload import workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from
from tests.contract.toys import GARDEN, TINY, ToyWorkload, draw_many

W = ToyWorkload()
CONFIGS = draw_many(GARDEN, W, 0, 50)


def test_values_are_the_spaces_tokens() -> None:
    table = Table.of(GARDEN)
    encoded = table.encode(CONFIGS)
    assert encoded.values.shape == (50, len(table.listed))
    offset = 0
    for column, param in enumerate(table.listed):
        expected = [param.tokens(config[param.name])[0] for config in CONFIGS]
        assert (encoded.values[:, column] - offset).tolist() == expected
        offset += 1 + param.range.size
    assert offset == table.lookups
    (order,) = encoded.orders
    for row, config in zip(order, CONFIGS, strict=True):
        assert row.tolist() == GARDEN.by_name["loops"].encode(config["loops"], W)  # type: ignore[arg-type]


def test_it_is_read_back() -> None:
    for space in (GARDEN, TINY):
        table = Table.of(space)
        again = Table.from_json(json.loads(json.dumps(table.to_json())))
        assert again.id == table.id
        configs = draw_many(space, W, 1, 20)
        for mine, theirs in zip(table.encode(configs).orders, again.encode(configs).orders, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(table.encode(configs).values, again.encode(configs).values)
    assert Table.of(GARDEN).id != Table.of(TINY).id


def test_configs_of_another_table_are_refused() -> None:
    table = Table.of(GARDEN)
    with pytest.raises(InputError, match="lacks"):
        table.encode([Config({"layout": "row"})])
    with pytest.raises(InputError, match="another table"):
        table.encode([Config({**CONFIGS[0], "tile": 3})])
    assert table.fits(CONFIGS[0])
    assert not table.fits(Config({**CONFIGS[0], "vector": 1}))  # True is not 1
    assert not table.fits(Config({**CONFIGS[0], "more": 1}))
    for rows in (None, [3], [{"name": "x"}], [{"name": "x", "items": ["a"]}]):
        with pytest.raises((InputError, KeyError, TypeError)):
            Table.from_json(rows)


def test_the_cpus_space() -> None:
    w = workload("spmm", entries_from(np.eye(50, dtype=np.float32)), n=16)
    space = cpu_space(w.assignment)
    table = Table.of(space)
    configs = [space.sample(w, np.random.default_rng(k)) for k in range(30)]
    weights = initial(table.form, np.random.default_rng(0))
    embedded = embed(weights, table.encode(configs))
    assert embedded.shape == (30, EMBEDDING)
    assert len(np.unique(embedded, axis=0)) == len(set(configs))


def test_no_config_at_all() -> None:
    table = Table.of(GARDEN)
    weights = initial(table.form, np.random.default_rng(0))
    nothing = embed(weights, table.encode([]))
    assert nothing.shape == (0, EMBEDDING)
    assert score(weights, np.zeros(EMBEDDING), nothing).shape == (1, 0)


def test_weights_have_their_shapes_and_seeds() -> None:
    table = Table.of(GARDEN)
    first, again, other = (initial(table.form, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert {name: array.shape for name, array in first.items()} == shapes(table.form)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert first[name].dtype == np.float32
        assert not np.array_equal(first[name], other[name])


def test_the_same_in_torch() -> None:
    torch = pytest.importorskip("torch")
    table = Table.of(GARDEN)
    weights, encoded = initial(table.form, np.random.default_rng(0), heads=3), table.encode(CONFIGS)
    pattern = np.random.default_rng(1).standard_normal(EMBEDDING).astype(np.float32)
    shape = len(CONFIGS), len(ProgramNest().fields) + 1
    nests = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    expected = score(weights, pattern, embed(weights, encoded), nests)
    assert not np.allclose(expected, score(weights, pattern, embed(weights, encoded)))
    assert expected.shape == (3, len(CONFIGS))
    tensors = {name: torch.from_numpy(array).requires_grad_() for name, array in weights.items()}
    values, *orders = (torch.from_numpy(array) for array in (encoded.values, *encoded.orders))
    configs = embed(tensors, Encoded(values, tuple(orders)))  # type: ignore[arg-type]
    got = score(tensors, torch.from_numpy(pattern), configs, torch.from_numpy(nests))
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    got.sum().backward()
    assert all(tensor.grad is not None for tensor in tensors.values())
