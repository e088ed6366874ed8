"""What came out, judged and as a page."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.corpus import geometric_mean
from benchmarks.pages import card, document, paragraphs, table
from tensorwise.front.svg import Scale, drawing, element, escape, label

KEY: Final = re.compile(r"^(?P<kernel>\w+): (?P<way>[\w-]+), (?:(?P<source>\w+) to )?(?P<target>\w+)$")
WAYS: Final = {
    "transferred": "transferred",
    "alone": "the target alone",
    "random": "random",
    "zero-shot": "zero-shot",
}
STYLE: Final = """
.dot.transferred { fill: #4c78a8; } .dot.alone { fill: #f58518; } .dot.random { fill: #8a8f98; }
.dot.zero-shot { fill: #e45756; }
.key i.transferred { background: #4c78a8; } .key i.alone { background: #f58518; } .key i.random { background: #8a8f98; }
.key i.zero-shot { background: #e45756; }
"""
METHOD: Final = """All times are what others measured and published (benchmark_hub of the auto-tuning community); every
config of a kernel is known on every GPU. A way may ask for 50 times of the target; the fastest of the five configs that it
then predicts to be best counts, as a multiple of the target's optimum. Transferred: all times of another GPU are known, too,
or those of all other GPUs, of which, and of each alone, that is believed which makes what was measured likeliest.
Random: the best of 55. Zero-shot: the best of the five that are fastest on the other GPU."""
OTHERS: Final = "others"
"""Stands for all GPUs but the target, as a source."""
MOST: Final = 3.0
"""What is farther from the optimum is drawn here."""

Runs = Mapping[str, Sequence[float]]


def pairs(runs: Runs) -> list[tuple[str, str, str, dict[str, np.ndarray]]]:
    """Return kernel, source, target and the multiples of the optimum by way, (seeds,) each, of complete pairs."""
    found = []
    for key in runs:
        said = KEY.match(key)
        if said is None or said["way"] != "transferred":
            continue
        kernel, source, target = said["kernel"], said["source"], said["target"]
        keys = {
            way: f"{kernel}: {way}, {target}"
            if way in ("alone", "random")
            else f"{kernel}: {way}, {source} to {target}"
            for way in WAYS
        }
        if all(of in runs for of in keys.values()):
            found.append((kernel, source, target, {way: np.array(runs[of]) for way, of in keys.items()}))
    return found


def from_others(runs: Runs) -> dict[tuple[str, str], np.ndarray]:
    """Return by kernel and target the multiples of the optimum, (seeds,), where all other GPUs are known."""
    said = {key: KEY.match(key) for key in runs}
    return {
        (one["kernel"], one["target"]): np.array(runs[key])
        for key, one in said.items()
        if one is not None and one["source"] == OTHERS
    }


def figures(runs: Runs, within: float) -> dict[str, dict[str, float]]:
    """Return by way over all pairs: ``mean``, geometric, of multiples of the optimum; ``share`` of pairs whose mean over
    seeds is within so much of it; and the ``worst`` pair's."""
    told = {}
    for way in WAYS:
        means = np.array([float(of[way].mean()) for *_, of in pairs(runs)])
        told[way] = {
            "mean": geometric_mean(means),
            "share": float((means <= 1 + within).mean()),
            "worst": float(means.max()),
        }
    return told


def judge(runs: Runs, expected: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """Return which claims hold, in words, and whether all do; None where no pair is complete."""
    if not pairs(runs):
        return [], None
    told, within = figures(runs, expected["within"]), expected["within"]
    moved, lines, holds = told["transferred"], list[str](), list[bool]()

    def claim(value: bool, text: str) -> None:
        holds.append(value)
        lines.append(f"{'holds' if value else 'does not hold'}: {text}")

    every = [float(of.mean()) for of in from_others(runs).values()]
    if every:
        mean, near = geometric_mean(every), sum(one <= 1 + within for one in every)
        claim(
            mean <= 1 + within,
            f"all other GPUs known: {mean:.3f} times the optimum, geometric mean over {len(every)} targets, claimed at most "
            f"{1 + within:.2f}; {near} of them are as close, the worst takes {max(every):.2f} times as long",
        )
    claim(
        moved["mean"] <= 1 + within,
        f"one GPU known: {moved['mean']:.3f} times the optimum, geometric mean over pairs, claimed at most "
        f"{1 + within:.2f}; {moved['share']:.0%} of the pairs are as close, the worst takes "
        f"{moved['worst']:.2f} times as long",
    )
    others = {words: told[way]["mean"] for way, words in WAYS.items() if way != "transferred"}
    claim(
        moved["mean"] < min(others.values()),
        f"better than every other way ({', '.join(f'{words} {mean:.3f}' for words, mean in others.items())})",
    )
    return lines, all(holds)


def page(runs: Runs, expected: Mapping[str, Any]) -> str:
    """Return the page."""
    lines, holds = judge(runs, expected)
    verdict = {True: "All hold.", False: "Not all hold.", None: "Nothing is known yet."}[holds]
    parts = [
        element("h1", "From one GPU to another"),
        paragraphs([METHOD]),
        card("Claims", paragraphs([verdict, *lines])),
    ]
    known = pairs(runs)
    if known:
        key = "".join(
            element("li", element("i", "", class_=way) + escape(words)) for way, words in WAYS.items()
        )
        parts.append(card("Every pair, means over seeds", _drawn(known) + element("ul", key, class_="key")))
        rows = [
            [
                kernel,
                source,
                target,
                *(f"{of[way].mean():.3f}" for way in WAYS),
                f"{of['transferred'].max():.3f}",
            ]
            for kernel, source, target, of in known
        ]
        head = ["kernel", "known GPU", "target", *WAYS.values(), "transferred, worst seed"]
        parts.append(card("Multiples of the optimum", table(head, rows)))
        rows = [[*names, f"{of.mean():.3f}", f"{of.max():.3f}"] for names, of in from_others(runs).items()]
        parts.append(
            card("All other GPUs known", table(["kernel", "target", "transferred", "worst seed"], rows))
        )
    return document("COGNATE: from GPU to GPU", "\n".join(parts), STYLE)


def _drawn(known: Sequence[tuple[str, str, str, dict[str, np.ndarray]]]) -> str:
    """A row a pair, a dot a way."""
    w, left, step = 680.0, 230.0, 18.0
    h = 34 + step * len(known) + 26
    across = Scale(1.0, MOST, left, w - 16)
    parts = []
    for tick in across.ticks():
        parts.append(element("path", class_="grid", d=f"M{across(tick):.1f} 20V{h - 28:.1f}"))
        parts.append(label(across(tick), h - 10, f"{tick:g}", anchor="middle"))
    for place, (kernel, source, target, of) in enumerate(known):
        y = 30 + step * place
        parts.append(
            label(left - 8, y + 4, f"{kernel}, {source} to {target}", class_="name", anchor="end", limit=40)
        )
        for way in reversed(WAYS):
            value = float(of[way].mean())
            tip = element("title", escape(f"{WAYS[way]}: {value:.3f}"))
            parts.append(
                element("circle", tip, class_=f"dot {way}", cx=across(min(value, MOST)), cy=y, r=4.0)
            )
    return drawing(w, h, "".join(parts), "Multiples of the optimum")
