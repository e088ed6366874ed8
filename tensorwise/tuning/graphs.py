"""Making the graph of configs that a search with a model walks over; it is kept beside the model."""

from collections.abc import Sequence

import numpy as np

from tensorwise.model.model import EmbeddingModel
from tensorwise.program.workload import Workload
from tensorwise.search import ConfigGraph, Pool
from tensorwise.search.building import bred, build_graph
from tensorwise.space.config import Config
from tensorwise.space.space import Space


def graph_of(
    model: EmbeddingModel, space: Space, works: Sequence[Workload], configs: int, rng: np.random.Generator
) -> ConfigGraph:
    """Return a graph of configs for some workloads: half from genetic search on predictions, linked by nearest embeddings.

    Args:
        model: trained.
        space: where configs come from.
        works: what they are for, taken in turn.
        configs: how many, at most.
        rng: decides which.
    """
    each, known = configs // 2 // len(works), list[Config]()
    for work in works:
        pattern = model.embed_pattern(work)

        def cost(some: Sequence[Config], pattern: np.ndarray = pattern) -> np.ndarray:
            return model.score(pattern, model.embed_configs(some))

        known += bred(space, work, cost, each, rng)
    pool = Pool.sample(space, works, configs, rng, also=known)
    return build_graph(pool, model.embed_configs(list(pool)))
