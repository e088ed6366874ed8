"""Graph operators in scatter-style torch code, as it is written where there is no library: a row for each edge."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scattering:
    """The edges of a graph.

    Attributes:
        u, v: (edges,) int64: source and destination of each.
        nodes: number of destinations.
    """

    u: Tensor
    v: Tensor
    nodes: int

    def sum(self, messages: Tensor) -> Tensor:
        """Add up messages (edges, *features) by destination: (nodes, *features)."""
        return messages.new_zeros(self.nodes, *messages.shape[1:]).index_add(0, self.v, messages)

    def max(self, messages: Tensor) -> Tensor:
        """The largest of the messages (edges, features) of each destination, 0 where there is none."""
        place = self.v[:, None].expand_as(messages)
        none = messages.new_zeros(self.nodes, messages.shape[1])
        return none.scatter_reduce(0, place, messages, "amax", include_self=False)

    def softmax(self, scores: Tensor) -> Tensor:
        """Softmax of scores (edges, heads) over the edges of a destination."""
        place = self.v[:, None].expand_as(scores)
        largest = scores.new_full((self.nodes, scores.shape[1]), -torch.inf)
        largest = largest.scatter_reduce(0, place, scores.detach(), "amax")
        powers = (scores - largest[self.v]).exp()
        return powers / self.sum(powers)[self.v]
