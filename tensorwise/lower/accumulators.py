"""Accumulators: registers that hold partial results, from where they open to where they are merged."""

from collections.abc import Callable

from tensorwise.lower import ir, monoids
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Keys
from tensorwise.lower.first_terms import declaration, start_with_first_terms
from tensorwise.lower.ir import Expr, Reg, Set, Stmt, Type, Var
from tensorwise.program.ops import Monoid


class Accumulators:
    """Registers of the loops inside of one point: (output slot, replica) -> one register a state component.

    A *slot* is an output element, or a vector of them. *Replicas* are partial results of the same slot, which unrolled
    copies and vectors of reduced loops have for themselves.
    """

    def __init__(
        self,
        monoid: Monoid,
        elem: str,
        builder: Builder,
        combine_threads: Callable[[tuple[Var, ...]], list[Stmt]] | None,
        first: Expr | None,
    ) -> None:
        """Open accumulators at the builder's insertion point.

        Args:
            elem: element type that is computed in.
            combine_threads: combines the states of a team's threads; None: one thread has all lanes.
            first: where arguments are met in ascending order, the first of them, or -1 where there is none.
        """
        self.monoid, self.elem, self.builder = monoid, elem, builder
        self.combine_threads, self.first = combine_threads, first
        self._declarations = builder.block
        self._registers: dict[tuple[Keys, Keys], tuple[Var, ...]] = {}

    def __len__(self) -> int:
        return len(self._registers)

    def registers(self, slot: Keys, replica: Keys, lanes: int) -> tuple[Var, ...]:
        """Return the registers of a slot and replica, declared on first use with the identity.

        The merge distinguishes replicas by their arguments: only one may start with the first entry.
        """
        key = (slot, replica)
        if key not in self._registers:
            made = []
            for component in self.monoid.components:
                counts = "i64" if lanes == 1 else ir.integer_elem(self.elem)
                type = Type(counts if component.holds == "coordinate" else self.elem, lanes)
                var = self.builder.fresh("acc" if component.name == "value" else component.name, type)
                start = declaration(var, component.identity)
                if component.holds == "coordinate" and self.first is not None and not replica:
                    start = Reg(var, ir.narrow(self.first, type))
                self._declarations.append(start)
                made.append(var)
            self._registers[key] = tuple(made)
        return self._registers[key]

    def reduce(self, slot: Keys, replica: Keys, state: tuple[Expr, ...]) -> None:
        """Emit the reduction of a state into the registers of a slot and replica."""
        known = self._registers.items()
        widths = [registers[0].type.lanes for (other, _), registers in known if other == slot]
        lanes = max([state[0].type.lanes, *widths[:1]])
        registers = self.registers(slot, replica, lanes)
        self.builder.append(*monoids.combine(self.monoid, registers, state, ascending=self.first is not None))

    def start_with_first_terms(self) -> None:
        """Let registers start with their first term where that is certain to come first."""
        if self.monoid.single:
            registers = [register for register, *_ in self._registers.values()]
            start_with_first_terms(self._declarations, registers, self.monoid.components[0].identity)

    def merge(self, slot: Keys) -> tuple[Expr, ...]:
        """Combine all replicas of a slot: vectors of equal length first, then their lanes."""
        block = self.builder.block
        main = self._registers[(slot, ())]
        replicas: dict[int, list[tuple[Var, ...]]] = {}
        for (other, replica), registers in self._registers.items():
            if other == slot and replica:
                replicas.setdefault(registers[0].type.lanes, []).append(registers)
        results: list[tuple[Expr, ...]] = []
        for lanes, (first, *others) in replicas.items():
            if lanes == main[0].type.lanes:
                results.extend([first, *others])
                continue
            for registers in others:
                block.extend(monoids.combine(self.monoid, first, registers))
            folded = [ir.Fold(monoids.fold_operator(self.monoid, c), r) for c, r in enumerate(first)]
            results.append(tuple(folded))
        in_lanes = any(
            key[0] == "lanes" for other, replica in self._registers for key in replica if other == slot
        )
        combine_threads = self.combine_threads if in_lanes else None
        untouched = combine_threads is None and not any(
            isinstance(s, Set) and s.var == main[0] for s in ir.walk(tuple(block))
        )
        if self.monoid.single and untouched and len(results) == 1:
            self._declarations.remove(declaration(main[0], self.monoid.components[0].identity))
            return (self.builder.let("total", results[0][0]),)
        for result in results:
            block.extend(monoids.combine(self.monoid, main, result))
        if combine_threads is not None:
            block.extend(combine_threads(main))
        return main
