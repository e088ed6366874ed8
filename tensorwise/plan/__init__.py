"""Plans: where the steps of an application run, so that all of it, transfers included, takes least."""

from tensorwise.moved import forward_names
from tensorwise.plan.graph import Link, Network, Step, StepGraph
from tensorwise.plan.measure import measured_link
from tensorwise.plan.place import Placement, place
from tensorwise.plan.replay import Event, PlacementPlan, chrome_trace, lasts, replay

__all__ = [
    "Event",
    "Link",
    "Network",
    "Placement",
    "PlacementPlan",
    "Step",
    "StepGraph",
    "chrome_trace",
    "lasts",
    "measured_link",
    "place",
    "replay",
]


__getattr__ = forward_names(__name__, {"Graph": f"{__name__}:StepGraph", "Plan": f"{__name__}:PlacementPlan"})
