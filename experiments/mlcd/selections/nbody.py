"""Bodies that attract each other, over some steps in float32 (MLCD, section V-C; Table II)."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np

import tensorwise as tw
from selections.gemm import sizes
from selections.gpu import add_simulation
from selections.laid_out import LaidOut, compiled
from tensorwise.errors import InputError
from tensorwise.selection import Selection
from tensorwise.toolchain.threads import available_threads

UNITS: Final = {
    "bodies": "bodies",
    "velocity": "standard deviation of velocities, m/s",
    "position": "standard deviation of positions, m",
    "mass": "standard deviation of masses, kg",
    "dt": "seconds a step",
    "steps": "steps",
    "flight": "spreads of positions that a body flies in a step",
    "fall": "spreads of positions that the pull of all others moves it in a step",
}
VERSIONS: Final = {
    "direct": ("nbody_direct", "all pairs, eight at a time, in tiles that stay in the cache, one thread"),
    "direct, threads": ("nbody_direct", "the same on all threads"),
    "naive": ("nbody_naive", "all pairs as they are written down, one thread"),
    "barnes-hut": ("nbody_barnes_hut", "far groups of bodies as one, by a tree that each step makes anew"),
}
ONE_THREAD: Final = ("naive", "direct")
GRAVITY: Final = 6.674e-11
SOFTENING: Final = 1e-3
"""Metres."""
LANES: Final = 8
MOST_NAIVE: Final = 512
"""Bodies that the naive version is tried on: it takes eight times as long as the other one of one thread."""
CLOSE: Final = 0.02
"""What accelerations may differ by, a share of their root mean square: Barnes-Hut's are off by half of it."""


def lay_out(state: np.ndarray, numbers: Mapping[str, float]) -> LaidOut:
    """Lay out a simulation in every version.

    Args:
        state: (7, bodies) float32: positions, velocities, masses.
        numbers: the features, but for those that ``moves`` tells of the others; ``dt`` and ``steps`` are arguments, too.

    Raises:
        InputError: there is no body, not all is finite, a mass is negative, or there is no step.
    """
    bodies = state.shape[1]
    if state.shape[0] != 7 or not bodies or not np.isfinite(state).all() or (state[6] < 0).any():
        raise InputError(
            f"bodies need seven finite numbers each, no negative mass; got {state.shape[0]} rows of {bodies}"
        )
    steps = int(numbers["steps"])
    if steps < 1:
        raise InputError(f"a simulation needs a step, got {steps}")
    start = time.perf_counter()
    for rows in (state[:3], state[3:6], state[6:]):
        rows.std()  # what the spreads would take where nobody knows them
    took_s = time.perf_counter() - start
    stride = -(-bodies // LANES) * LANES
    padded = np.zeros((7, stride), np.float32)
    padded[:, :bodies] = state
    physics = np.array([numbers["dt"], GRAVITY, SOFTENING**2], np.float32)
    features = {**numbers, **moves(numbers)}
    made = LaidOut(tuple(float(features[name]) for name in UNITS), (state, numbers["dt"], steps), took_s)
    for name, (function, _) in VERSIONS.items():
        result = np.empty((6, bodies), np.float32)
        if name == "naive" and bodies > MOST_NAIVE:
            continue
        threads = 1 if name in ONE_THREAD else available_threads()
        call = compiled(function, (padded, result, physics), (bodies, stride, steps, threads))
        made.add(name, partial(_finished, call), result)
    return made


def moves(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return how far a body gets in the first step, in spreads of positions: clouds that fly apart have deeper trees."""
    dt, position = numbers["dt"], numbers["position"]
    masses = numbers["bodies"] * (1 + numbers["mass"])
    pull = GRAVITY * masses / (position**2 + SOFTENING**2)
    return {"flight": numbers["velocity"] * dt / position, "fall": pull * dt**2 / position}


def _finished(call: Callable[[], int]) -> None:
    if call():
        raise MemoryError("there is no room for the simulation")


def agree(result: np.ndarray, expected: np.ndarray) -> str | None:
    """Say how simulations differ; None where all bodies are accelerated alike at first.

    What becomes of many bodies after some steps is chaotic: rounding decides it, and no two programs agree.
    """
    if not np.isfinite(result).all():
        return "not all is finite"
    off, usual = (
        float(np.sqrt(np.square(a.astype(float)).mean())) for a in (result[3:] - expected[3:], expected[3:])
    )
    return (
        None
        if off <= CLOSE * usual
        else f"accelerations are off by {off / usual:.2%} of their root mean square"
    )


def make(**numbers: float) -> tuple[LaidOut]:
    """Return a simulation, laid out: normal distributions around 1; of masses the magnitudes, since none is negative."""
    bodies = int(numbers["bodies"])
    rng = np.random.default_rng(bodies)
    spreads = np.repeat([numbers["position"], numbers["velocity"], numbers["mass"]], [3, 3, 1])
    state = 1 + spreads[:, None] * rng.normal(size=(7, bodies))
    state[6] = np.abs(state[6])
    return (lay_out(state.astype(np.float32), numbers),)


def inputs(ranges: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw an input (section IV-B3): bodies about 1.5^n; spreads, time steps and numbers of steps from lists.

    A cell is a number of bodies with three spreads. Simulations of more than ``most_pairs`` pairs in all are not drawn.
    """
    while True:
        bodies, steps = int(rng.choice(sizes(ranges["most_bodies"]))), int(rng.choice(ranges["steps"]))
        if bodies * bodies * steps <= ranges["most_pairs"]:
            velocity, position, mass = (float(rng.choice(ranges["spreads"])) for _ in range(3))
            dt = float(rng.choice(ranges["dt"]))
            one = {
                "bodies": bodies, "velocity": velocity, "position": position, "mass": mass, "dt": dt, "steps": steps,
            }  # fmt: skip
            return {**one, **moves(one), "cell": f"{bodies} {velocity:g} {position:g} {mass:g}"}


def nbody(name: str, ranges: Mapping[str, Any]) -> Selection:
    """Return the simulation with its versions."""
    made = tw.versions(
        name,
        features=attrgetter("features"),
        units=UNITS,
        make=make,
        inputs=partial(inputs, ranges),
        agree=agree,
    )
    for version in VERSIONS:
        made.version(methodcaller("run", version), name=version)
    add_simulation(made, GRAVITY, SOFTENING)
    return made
