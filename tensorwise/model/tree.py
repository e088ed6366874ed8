"""Tree: a binary decision tree. scikit-learn trains it; JSON, Python, NumPy and C read and evaluate it without scikit-learn.

Nodes are numbered in depth-first order, the child for values below the threshold first, right after its parent.
"""

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.errors import CompilerError, InputError, MissingExtraError
from tensorwise.toolchain.cache import LoadedKernel, default_cache

_log = logging.getLogger(__name__)

LEAF: Final = -1
NAMES: Final = ("feature", "threshold", "above", "value")
MOST_NODES: Final = 2**24
"""A larger tree is not read; 20,000 inputs make some 10,000 nodes."""


@final
@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes by number; node 0 is the root. A node that is no leaf asks whether a feature is at most a threshold.

    Attributes:
        feature: (nodes,) int32: place of the feature that is asked for; LEAF at a leaf.
        threshold: (nodes,) float64: at most this goes below, everything else (NaN too) above; 0 at a leaf.
        above: (nodes,) int32: the node above; the one below is the next one. 0 at a leaf.
        value: (nodes,) float64: what a leaf says; 0 elsewhere.

    >>> tree = Tree.checked([0, -1, -1], [2.5, 0, 0], [2, 0, 0], [0, 7, 8], fields=1)
    >>> tree.at([2.0]), tree.at([3.0])
    (7.0, 8.0)
    """

    feature: np.ndarray
    threshold: np.ndarray
    above: np.ndarray
    value: np.ndarray

    @classmethod
    def checked(
        cls,
        feature: Sequence[int] | np.ndarray,
        threshold: Sequence[float] | np.ndarray,
        above: Sequence[int] | np.ndarray,
        value: Sequence[float] | np.ndarray,
        fields: int,
    ) -> Self:
        """Return the tree of these nodes, which ask for features 0 to ``fields - 1``.

        Raises:
            InputError: lengths differ, a number is not finite, or a feature or node does not exist; paths must end.
        """
        tree = cls(
            np.array(feature, np.int32), np.array(threshold, float), np.array(above, np.int32), np.array(value, float)
        )  # fmt: skip
        nodes = len(tree.feature)
        arrays = (tree.feature, tree.threshold, tree.above, tree.value)
        if not 0 < nodes <= MOST_NODES or any(array.shape != (nodes,) for array in arrays):
            raise InputError(f"a tree needs as many of each, got {[array.shape for array in arrays]}")
        inner = np.flatnonzero(tree.feature != LEAF)
        onward = (tree.above[inner] > inner + 1) & (tree.above[inner] < nodes)
        known = (tree.feature[inner] >= 0) & (tree.feature[inner] < fields)
        if not (onward.all() and known.all() and all(np.isfinite(array).all() for array in arrays)):
            raise InputError(
                f"no tree over {fields} features: a node leads backwards, or nowhere, or is not finite"
            )
        return cls(*arrays)

    @classmethod
    def grown(cls, trained: Any) -> Self:
        """Return the tree of a fitted DecisionTreeRegressor or DecisionTreeClassifier of scikit-learn.

        A leaf says what the regressor does; what a classifier's leaf says is the caller's to fill in.
        """
        inside = trained.tree_
        feature = np.where(inside.children_left < 0, LEAF, inside.feature)
        inner = feature != LEAF
        assert (inside.children_left[inner] == np.flatnonzero(inner) + 1).all(), "not in the order of a walk"
        return cls.checked(
            feature, np.where(inner, inside.threshold, 0.0), np.where(inner, inside.children_right, 0),
            np.where(inner, 0.0, inside.value[:, 0, 0]), trained.n_features_in_,
        )  # fmt: skip

    def without_idle_questions(self) -> Self:
        """Return an equal tree without questions whose leaves all have the same value.

        >>> tree = Tree.checked([0, 1, -1, -1, -1], [2.5, 9, 0, 0, 0], [4, 3, 0, 0, 0], [0, 0, 7, 7, 8], fields=2)
        >>> shorter = tree.without_idle_questions()
        >>> shorter.feature.tolist(), shorter.above.tolist(), shorter.value.tolist()
        ([0, -1, -1], [2, 0, 0], [0.0, 7.0, 8.0])
        """
        says = np.where(
            self.feature == LEAF, self.value, np.nan
        )  # what all leaves below a node say, if they agree
        for node in np.flatnonzero(self.feature != LEAF)[::-1]:
            if says[node + 1] == says[self.above[node]]:
                says[node] = says[node + 1]
        kept, ahead = list[int](), [0]
        while ahead:
            kept.append(node := ahead.pop())
            if np.isnan(says[node]):
                ahead += [int(self.above[node]), node + 1]
        places = {node: place for place, node in enumerate(kept)}
        leaf = ~np.isnan(says[kept])
        above = [places.get(int(node), 0) for node in self.above[kept]]
        return replace(
            self,
            feature=np.where(leaf, LEAF, self.feature[kept]).astype(np.int32),
            threshold=np.where(leaf, 0.0, self.threshold[kept]),
            above=np.where(leaf, 0, above).astype(np.int32),
            value=np.where(leaf, says[kept], 0.0),
        )

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return int((self.feature == LEAF).sum())

    @cached_property
    def depth(self) -> int:
        """Most questions on a way from the root to a leaf."""
        depth = np.zeros(len(self.feature), int)
        for node in np.flatnonzero(self.feature != LEAF):
            depth[[node + 1, self.above[node]]] = depth[node] + 1
        return int(depth.max())

    @cached_property
    def _lists(self) -> tuple[list[int], list[float], list[int], list[float]]:
        return self.feature.tolist(), self.threshold.tolist(), self.above.tolist(), self.value.tolist()

    def at(self, features: Sequence[float]) -> float:
        """Return what the leaf of one input says: plain Python, the oracle of the others."""
        feature, threshold, above, value = self._lists
        node = 0
        while (asked := feature[node]) != LEAF:
            node = node + 1 if features[asked] <= threshold[node] else above[node]
        return value[node]

    def leaf_of(self, features: np.ndarray) -> np.ndarray:
        """Return the leaf of each input: (inputs, fields) float64 -> (inputs,) int64."""
        node = np.zeros(len(features), np.int64)
        going = np.flatnonzero(self.feature[node] != LEAF)
        while len(going):
            here = node[going]
            below = features[going, self.feature[here]] <= self.threshold[here]
            node[going] = np.where(below, here + 1, self.above[here])
            going = going[self.feature[node[going]] != LEAF]
        return node

    def values_at(self, features: np.ndarray) -> np.ndarray:
        """Return what the leaf of each input says: (inputs, fields) float64 -> (inputs,) float64."""
        values: np.ndarray = self.value[self.leaf_of(features)]
        return values

    def reading(self, places: Sequence[int]) -> "Tree":
        """Return the same tree for inputs whose features stand in another order: number k is at ``places[k]``."""
        inner = self.feature != LEAF
        feature = np.where(inner, np.asarray(places, np.int32)[np.where(inner, self.feature, 0)], LEAF)
        return replace(self, feature=feature.astype(np.int32))

    # -- C -------------------------------------------------------------------------------------------

    def c_text(self, fields: int) -> str:
        """Return C for a tree whose leaves hold small integers, for ``toolchain/cache.py``.

        The function ``TW_SYMBOL`` evaluates ``sizes[0]`` rows of features in ``buffers[0]`` and writes int32 results to
        ``buffers[1]``. ``TW_SYMBOL_one`` takes the features of one input and returns its leaf's value. In the table of
        nodes, a leaf has its value in the column where other nodes have the number of their upper child.
        """
        leaf = self.feature == LEAF
        onward = np.where(leaf, self.value.astype(np.int32), self.above)
        nodes = ",".join(
            f"{{{threshold!r},{feature},{above}}}"
            for threshold, feature, above in zip(self._lists[1], self._lists[0], onward.tolist(), strict=True)
        )
        named = [f"x{place}" for place in range(fields)]
        return f"""
static const struct {{ double threshold; int32_t feature, above; }} TW_SYMBOL_nodes[] = {{{nodes}}};
TW_INLINE int32_t TW_SYMBOL_leaf(const double *x)
{{
    int32_t node = 0;
    for (;;) {{
        const int32_t feature = TW_SYMBOL_nodes[node].feature, above = TW_SYMBOL_nodes[node].above;
        if (feature < 0) return above;
        node = x[feature] <= TW_SYMBOL_nodes[node].threshold ? node + 1 : above;
    }}
}}
int32_t TW_SYMBOL_one({", ".join(f"double {name}" for name in named)})
{{
    const double x[] = {{{", ".join(named)}}};
    return TW_SYMBOL_leaf(x);
}}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{{
    const double *x = buffers[0];
    int32_t *said = buffers[1];
    for (int64_t row = 0; row < sizes[0]; row++) said[row] = TW_SYMBOL_leaf(x + {fields} * row);
    return 0;
}}
"""

    def compiled(self, fields: int) -> "CompiledTree":
        """Return the tree as machine code, compiled once a machine; its leaves must say small integers.

        Raises:
            CompilerError: no compiler works here.
        """
        (kernel,) = default_cache().get([self.c_text(fields)])
        return CompiledTree(kernel, fields)

    def deciding(self, fields: int) -> Callable[..., int]:
        """Return the quickest function from the features of one input, one argument each, to what its leaf says.

        It is compiled, or, where there is no compiler, plain Python.
        """
        try:
            return self.compiled(fields).one
        except CompilerError as error:
            _log.info("a decision tree is walked in Python, a few microseconds slower: %s", error)
            return lambda *features: int(self.at(features))

    # -- JSON ----------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, list[Any]]:
        """Return a JSON object; numbers survive exactly."""
        return dict(zip(NAMES, self._lists, strict=True))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], fields: int) -> Self:
        """Read back what ``to_json`` returned; raises InputError as ``checked``, and KeyError."""
        feature, threshold, above, value = (data[name] for name in NAMES)
        return cls.checked(feature, threshold, above, value, fields)

    # -- text ----------------------------------------------------------------------------------------

    def text(self, fields: Sequence[str], say: Callable[[float], str], levels: int | None = None) -> str:
        """Return the tree as lines, a question or an answer each.

        Args:
            fields: names of the features.
            say: (what a leaf says) -> words.
            levels: below so many questions only the leaves are counted; None: all is shown.

        >>> tree = Tree.checked([0, -1, -1], [2.5, 0, 0], [2, 0, 0], [0, 7, 8], fields=1)
        >>> print(tree.text(["rows"], "{:.0f}".format))
        rows <= 2.5
          7
        rows > 2.5
          8
        """
        lines: list[str] = []
        stack: list[tuple[int, int, str]] = [(0, 0, "")]
        while stack:
            node, depth, heading = stack.pop()
            if heading:
                lines.append("  " * (depth - 1) + heading)
            asked = int(self.feature[node])
            if asked == LEAF:
                lines.append("  " * depth + say(float(self.value[node])))
            elif levels is not None and depth >= levels:
                under = [self.value[leaf] for leaf in self._leaves_under(node)]
                answers = ", ".join(dict.fromkeys(say(float(value)) for value in under))
                lines.append("  " * depth + f"{len(under)} leaves: {answers}")
            else:
                question = f"{fields[asked]} {{}} {self.threshold[node]:.6g}"
                stack.append((int(self.above[node]), depth + 1, question.format(">")))
                stack.append((node + 1, depth + 1, question.format("<=")))
        return "\n".join(lines)

    def _leaves_under(self, node: int) -> list[int]:
        leaves, stack = [], [node]
        while stack:
            here = stack.pop()
            if self.feature[here] == LEAF:
                leaves.append(here)
            else:
                stack += [int(self.above[here]), here + 1]
        return leaves


@final
class CompiledTree:
    """A tree as machine code.

    Attributes:
        one: (feature, feature, ...) -> what the leaf of that input says, an int.
    """

    def __init__(self, kernel: LoadedKernel, fields: int) -> None:
        self._kernel, self._fields = kernel, fields
        self._library = ctypes.CDLL(str(kernel.path))
        one = self._library[f"tw_{kernel.key}_one"]
        one.argtypes, one.restype = (ctypes.c_double,) * fields, ctypes.c_int32
        self.one: Callable[..., int] = one

    def values_at(self, features: np.ndarray) -> np.ndarray:
        """Return what the leaf of each input says: (inputs, fields) -> (inputs,) int32."""
        rows = np.ascontiguousarray(features, float).reshape(-1, self._fields)
        said = np.empty(len(rows), np.int32)
        buffers = (ctypes.c_void_p * 2)(rows.ctypes.data, said.ctypes.data)
        self._kernel.function(buffers, (ctypes.c_int64 * 1)(len(rows)))
        return said


def scikit_learn(name: str) -> Any:
    """Return a class of ``sklearn.tree`` or ``sklearn.ensemble``.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        import sklearn.ensemble
        import sklearn.tree
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "select", "training trees") from error
    return getattr(sklearn.tree, name, None) or getattr(sklearn.ensemble, name)
