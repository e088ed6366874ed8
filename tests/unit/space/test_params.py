"""The kinds of parameters, one by one."""

from typing import Any

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.space.config import Value
from tensorwise.space.domain import INACTIVE, Listed, Orders
from tensorwise.space.params import Choice, Flag, Param, Permutation, PowerOfTwo, powers
from tests.contract.toys import ToyWorkload

W: Any = ToyWorkload()
DOC = "A sentence with the reason."

CHOICE = Choice("c", ("x", "y", "z"), binds="pack", doc=DOC)
FLAG = Flag("f", binds="call", doc=DOC)
POWER = PowerOfTwo("p", 1, 64, binds="call", doc=DOC, extent="i")
LOOPS = Permutation(
    "l",
    ("i1", "i0", "k1", "k0"),
    before=(("i1", "i0"), ("k1", "k0")),
    beside={"i0": "i1", "k0": "k1"},
    binds="compile",
    doc=DOC,
)

KINDS: dict[str, tuple[Param, Any]] = {
    "choice": (CHOICE, Listed(("x", "z"))),
    "choice-one": (CHOICE, Listed(("y",))),
    "flag": (FLAG, Listed((False, True))),
    "flag-one": (FLAG, Listed((True,))),
    "power": (POWER, Listed((2, 4, 32))),
    "power-all": (POWER, POWER.domain({}, W)),
    "permutation": (LOOPS, LOOPS.domain({}, W)),
    "permutation-some": (LOOPS, Orders(("i1", "k1", "k0"), (("k1", "k0"),))),
    "inactive": (POWER, INACTIVE),
    "inactive-permutation": (LOOPS, INACTIVE),
}

kinds = pytest.mark.parametrize(("param", "domain"), KINDS.values(), ids=KINDS.keys())


@kinds
def test_results_stay_in_the_domain(param: Param, domain: Any) -> None:
    rng = np.random.default_rng(0)
    everything: list[Value] = [None, *param.domain({}, W)]
    for _ in range(60):
        a, b = (everything[int(rng.integers(len(everything)))] for _ in range(2))
        value = param.nearest(a, domain)
        assert value in domain
        assert param.cross(a, b, domain, rng) in domain
        assert param.sample(rng, domain) in domain
        assert param.default(domain, {}, W) in domain
        mutated = param.mutate(value, domain, rng)
        assert mutated in domain
        assert (mutated == value) == (domain.size == 1)
        neighbours = param.neighbours(value, domain)
        assert all(other in domain and other != value for other in neighbours)
        assert bool(neighbours) == (domain.size > 1)


@kinds
def test_nearest_keeps_what_is_allowed(param: Param, domain: Any) -> None:
    assert all(param.nearest(value, domain) == value for value in domain)


@kinds
def test_encodings_are_distinct_and_named(param: Param, domain: Any) -> None:
    values = list(param.domain({}, W))
    vectors = [tuple(param.encode(value, W)) for value in [None, *values]]
    assert {len(vector) for vector in vectors} == {len(param.encoding_names)}
    assert len(set(vectors)) == len(vectors)
    assert set(vectors[0]) == {0.0}
    assert all(vector[-1] == 1.0 and min(vector) >= 0 and max(vector) <= 1 for vector in vectors[1:])
    tokens = [tuple(param.tokens(value)) for value in [None, *values]]
    assert len(set(tokens)) == len(tokens)
    assert set(tokens[0]) == {0}
    assert all(0 <= t < size for token in tokens for t, size in zip(token, param.token_sizes, strict=True))


@pytest.mark.parametrize("param", [CHOICE, FLAG, POWER, LOOPS], ids=lambda param: param.name)
def test_cardinality_counts_the_unnarrowed_domain(param: Param) -> None:
    assert param.cardinality == param.domain({}, W).size == len(list(param.domain({}, W)))


def test_power_neighbours_and_nearest_go_by_the_logarithm() -> None:
    domain = POWER.domain({}, W)
    assert POWER.neighbours(8, domain) == [4, 16]
    assert POWER.neighbours(1, domain) == [2]
    assert POWER.nearest(64, Listed((1, 16))) == 16
    assert POWER.encode(8, W) == [0.5, 0.5, 1.0]


def test_power_mutation_prefers_small_steps() -> None:
    rng = np.random.default_rng(0)
    domain = POWER.domain({}, W)
    steps = [abs(int(POWER.mutate(8, domain, rng)).bit_length() - 4) for _ in range(400)]  # type: ignore[arg-type]
    assert steps.count(1) > steps.count(2) > steps.count(3) > 0


def test_power_narrow_is_intersected_with_the_range() -> None:
    param = PowerOfTwo("p", 4, 16, binds="call", doc=DOC, narrow=lambda earlier, w: powers(1, w.sizes["i"]))
    assert list(param.domain({}, W)) == [4, 8, 16]


def test_preferred_value_is_the_default_where_allowed() -> None:
    fixed = PowerOfTwo("p", 1, 64, binds="call", doc=DOC, prefer=16)
    assert fixed.default(fixed.domain({}, W), {}, W) == 16
    assert fixed.default(Listed((1, 2)), {}, W) == 2
    computed = Choice(
        "c", (1, 2), binds="call", doc=DOC, prefer=lambda earlier, w: 2 if w.op == "spmm" else 1
    )
    assert computed.default(computed.domain({}, W), {}, W) == 2
    never = Choice("c", (1, 2), binds="call", doc=DOC, prefer=lambda earlier, w: 3)
    with pytest.raises(InputError, match="'c': preferred value"):
        never.default(never.domain({}, W), {}, W)


def test_left_out_loops_stand_beside_their_outer_ones_in_the_encoding() -> None:
    whole = LOOPS.encode(("k1", "k0", "i1", "i0"), W)
    assert LOOPS.encode(("k1", "i1"), W) == whole
    alone = Permutation("l", ("a", "b"), binds="compile", doc=DOC)
    assert alone.encode(("b",), W) == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_repair_puts_new_loops_behind_their_outer_ones() -> None:
    assert LOOPS.nearest(("k1", "i1"), LOOPS.domain({}, W)) == ("k1", "k0", "i1", "i0")
    assert LOOPS.nearest(("k0", "k1", "i1", "i0"), LOOPS.domain({}, W)) == ("k1", "k0", "i1", "i0")


def test_crossing_keeps_pairs_that_both_parents_share() -> None:
    rng = np.random.default_rng(0)
    a, b = ("i1", "k1", "i0", "k0"), ("i1", "i0", "k1", "k0")
    for _ in range(50):
        child = LOOPS.cross(a, b, Orders(LOOPS.items), rng)
        assert isinstance(child, tuple)
        assert child[0] == "i1"
        assert child[-1] == "k0"


def test_permutation_neighbours_reach_every_order() -> None:
    domain = LOOPS.domain({}, W)
    reached, frontier = {LOOPS.items}, [LOOPS.items]
    while frontier:
        for other in LOOPS.neighbours(frontier.pop(), domain):
            if other not in reached:
                reached.add(other)  # type: ignore[arg-type]
                frontier.append(other)  # type: ignore[arg-type]
    assert len(reached) == domain.size == 6


def test_narrow_of_a_permutation_gives_items_or_orders() -> None:
    some = Permutation(
        "l", LOOPS.items, before=LOOPS.before, binds="compile", doc=DOC, narrow=lambda e, w: ("k0", "k1")
    )
    assert list(some.domain({}, W)) == [("k1", "k0")]
    more = Permutation(
        "l",
        LOOPS.items,
        before=LOOPS.before,
        binds="compile",
        doc=DOC,
        narrow=lambda e, w: Orders(LOOPS.items, (("i0", "k1"),)),
    )
    assert list(more.domain({}, W)) == [("i1", "i0", "k1", "k0")]
    chain = Permutation(
        "l",
        ("a", "b", "c"),
        before=(("a", "b"), ("b", "c")),
        binds="call",
        doc=DOC,
        narrow=lambda e, w: ("c", "a"),
    )
    assert list(chain.domain({}, W)) == [("a", "c")]


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Choice("c", (), binds="call", doc=DOC), "distinct"),
        (lambda: Choice("c", ("a", "a"), binds="call", doc=DOC), "distinct"),
        (lambda: Choice("c", ("a", None), binds="call", doc=DOC), "not None"),
        (lambda: Choice("c", ("a",), binds="later", doc=DOC), "binds"),  # type: ignore[arg-type]
        (lambda: Choice("c", ("a",), binds="call", doc=""), "sentence"),
        (lambda: Choice("", ("a",), binds="call", doc=DOC), "name"),
        (lambda: Choice("c", ("a",), binds="call", doc=DOC, prefer="b"), "preferred"),
        (lambda: PowerOfTwo("p", 3, 8, binds="call", doc=DOC), "powers of two"),
        (lambda: PowerOfTwo("p", 8, 2, binds="call", doc=DOC), "exceed"),
        (lambda: Permutation("l", ("a", "a"), binds="call", doc=DOC), "distinct"),
        (lambda: Permutation("l", ("a",), before=(("a", "b"),), binds="call", doc=DOC), "pair of its items"),
        (
            lambda: Permutation("l", ("a", "b"), before=(("a", "b"), ("b", "a")), binds="call", doc=DOC),
            "cycle",
        ),
    ],
)
def test_malformed_tables_are_refused(make: Any, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        make()


@pytest.mark.parametrize(
    ("param", "hint"),
    [
        (Choice("c", ("a", "b"), binds="call", doc=DOC, narrow=lambda e, w: ("z",)), "never take"),
        (Choice("c", ("a", "b"), binds="call", doc=DOC, narrow=lambda e, w: ()), "no value"),
        (PowerOfTwo("p", 1, 4, binds="call", doc=DOC, narrow=lambda e, w: (3,)), "never take"),
        (PowerOfTwo("p", 1, 4, binds="call", doc=DOC, narrow=lambda e, w: (8,)), "no value"),
        (
            Permutation("l", ("a", "b"), binds="call", doc=DOC, narrow=lambda e, w: ("z",)),
            "some of its items",
        ),
        (Permutation("l", ("a", "b"), binds="call", doc=DOC, narrow=lambda e, w: ()), "some of its items"),
    ],
)
def test_narrow_must_stay_in_the_range(param: Param, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        param.domain({}, W)


def test_powers() -> None:
    assert powers(1, 1) == (1,)
    assert powers(2, 9) == (2, 4, 8)
    assert powers(1, 0) == (1,)
    assert powers(8, 4) == (8,)
