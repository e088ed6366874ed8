"""What a config says can be read before all of it is chosen."""

from tensorwise.space import readings

EARLIER = {
    "layout": "coordinates",
    "split_i": 4,
    "split_k": 1,
    "split_j": 16,
    "order": ("i1", "k1", "i0", "j1", "j0"),
    "levels_follow_loops": True,
}
KINDS = {"kind_i1": "U", "kind_i0": "U", "kind_k1": "C", "kind_k0": None}


def test_loops_of_indices_that_are_not_split_are_absent() -> None:
    assert readings.present(readings.loops_of(("i", "k")), EARLIER) == ("i1", "i0", "k1")
    assert readings.splits(EARLIER) == {"i": 4, "j": 16}


def test_levels_stand_as_the_loops_or_in_an_order_of_their_own() -> None:
    assert readings.stored_loops({**EARLIER, **KINDS}) == ["i1", "k1", "i0"]
    own = {**EARLIER, **KINDS, "levels_follow_loops": False, "levels": ("k1", "i1", "i0")}
    assert readings.stored_loops(own) == ["k1", "i1", "i0"]
    assert readings.innermost_stored(own) == "i0"


def test_a_list_has_one_loop() -> None:
    whole = {
        **EARLIER,
        "split_i": 1,
        "order": ("i1", "k1", "j1", "j0"),
        "layout": "list",
        "kind_i1": None,
        "kind_k1": None,
    }
    assert readings.nest(whole) == ("i1", "j1", "j0")


def test_copies_of_the_innermost_body() -> None:
    config = {**EARLIER, **KINDS, "parallel": "i1", "tile": "j0", "vectors": 4, "bound": None}
    assert readings.block_loops(config) == ["i0"]
    assert readings.block_copies(config) == 4
    assert readings.block_copies({**config, "tile": "i0"}) == 16
    assert readings.strips(config) == 4 + 2 + 1 + 4
    assert readings.strips({**config, "tile": "none"}) == 1
    assert not readings.gathers(config)
    assert readings.gathers({**config, "tile": "k1"})
