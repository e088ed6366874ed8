"""Plans: where the steps of an application run, so that all of it, transfers included, takes least."""

from tensorwise.plan.graph import Graph, Link, Network, Step
from tensorwise.plan.measure import measured_link
from tensorwise.plan.place import Placement, place
from tensorwise.plan.replay import Event, Plan, chrome_trace, lasts, replay

__all__ = [
    "Event",
    "Graph",
    "Link",
    "Network",
    "Placement",
    "Plan",
    "Step",
    "chrome_trace",
    "lasts",
    "measured_link",
    "place",
    "replay",
]
