"""Shares of right answers, and differences between them, as Markdown tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes.evals.breakdown import By, Comparison, Measure, Share
    from hermes.evals.shapes import Sample
    from hermes.evals.statistics import Accuracy
    from hermes.evals.sweeps import Arm

_HEADINGS = {"type": "Type", "age": "Age of the evidence, frames"}
_MEASURES = {"open": "", "choice": " by choice"}
_NONE = "none asked"

Place = tuple[int | None, str, str, "Measure"]  # of a cell: length, part, arm, and how it was asked
Column = tuple[str, Callable[[int, str], str]]  # a heading, and the cell of a length and an arm


@dataclass(frozen=True)
class Results:
    """The samples of a run, and how they are to be shown.

    Attributes:
        arms: what is compared, in this order.
        against: the name of the one among them that the others are compared with.
        lengths: of the videos, in frames.
        by: what a table sorts them by.
        compared: what an arm is, as a heading.
        evidence: also show how often the evidence is right.
    """

    samples: Sequence[Sample]
    arms: Sequence[Arm]
    against: str
    lengths: Sequence[int]
    by: By = "group"
    compared: str = "Policy"
    evidence: bool = False

    @property
    def names(self) -> list[str]:
        """Of the arms."""
        return [arm.name for arm in self.arms]

    def markdown(self) -> str:
        """A table of shares in per cent, and one of differences where there are several arms; intervals behind them."""
        from hermes.evals.breakdown import chosen_by_chance, comparisons, shares  # noqa: PLC0415 - loads torch

        right = shares(self.samples, self.by, self.names, self.lengths)
        cells = {(s.frames, s.label, s.arm, s.measure): share_cell(s.accuracy) for s in right}
        parts = [self._table(cells, self.names, self._evidence() if self.evidence else [])]
        by_chance = chosen_by_chance(self.samples)
        if by_chance is not None:
            parts.append(f"By chance {100 * by_chance:.1f} % of the choices would be right.\n")
        others = [name for name in self.names if name != self.against]
        if others:
            differences = comparisons(self.samples, self.by, self.names, self.lengths, self.against)
            cells = {(c.frames, c.label, c.arm, c.measure): _difference(c) for c in differences}
            parts += [f"Points more than `{self.against}` on the same questions:\n", self._table(cells, others, [])]
        return "\n".join(parts)

    def json(self) -> dict[str, Any]:
        """The same numbers, with intervals by video beside the others."""
        from hermes.evals.breakdown import chosen_by_chance, comparisons, shares  # noqa: PLC0415 - loads torch

        differences = comparisons(self.samples, self.by, self.names, self.lengths, self.against)
        record: dict[str, Any] = {
            "results": [self._share(share) for share in shares(self.samples, self.by, self.names, self.lengths)],
            "differences": [self._comparison(comparison) for comparison in differences],
            "chosen_by_chance": chosen_by_chance(self.samples),
        }
        return record | ({"evidence": self._traced()} if self.evidence else {})

    def _arm(self, name: str) -> dict[str, str]:
        return {"arm": name, "policy": next(arm.policy for arm in self.arms if arm.name == name)}

    def _share(self, share: Share) -> dict[str, Any]:
        place = {"frames": share.frames, **self._arm(share.arm), self.by: share.label, "measure": share.measure}
        return {**place, **share_counts(share.accuracy), **_by_video(share.by_video)}

    def _comparison(self, comparison: Comparison) -> dict[str, Any]:
        paired, (low, high) = comparison.paired, comparison.paired.interval
        return {
            "frames": comparison.frames,
            **self._arm(comparison.arm),
            "against": comparison.against,
            self.by: comparison.label,
            "measure": comparison.measure,
            "gained": paired.gained,
            "lost": paired.lost,
            "total": paired.total,
            "difference": paired.difference if paired.total else None,
            "low": low,
            "high": high,
            "p": paired.p_value,
            **_by_video(comparison.by_video),
        }

    def _table(self, cells: Mapping[Place, str], arms: Sequence[str], more: Sequence[Column]) -> str:
        """Groups stand side by side with an arm a row; types and ages, which are many, below each other, an arm a column."""
        head, *rows = self._by_arm(cells, arms, more) if self.by == "group" else self._by_part(cells, arms)
        rule = ["---"] * len(head)
        return "".join(f"|{'|'.join(row)}|\n" for row in [_spaced(head), rule, *map(_spaced, rows)])

    def _by_arm(self, cells: Mapping[Place, str], arms: Sequence[str], more: Sequence[Column]) -> Iterator[list[str]]:
        """The headings, then the rows."""
        columns = [(part, way) for way in self._ways for part in self._parts]
        named = [part.capitalize() + _MEASURES[way] for part, way in columns]
        yield ["Frames", self.compared, *named, *(heading for heading, _ in more)]
        for frames in self.lengths:
            for arm in arms:
                found = [cells[frames, part, arm, way] for part, way in columns]
                yield [str(frames), arm, *found, *(cell(frames, arm) for _, cell in more)]

    def _by_part(self, cells: Mapping[Place, str], arms: Sequence[str]) -> Iterator[list[str]]:
        """The headings, then the rows in which something was asked."""
        columns = [(arm, way) for way in self._ways for arm in arms]
        yield ["Frames", _HEADINGS[self.by], *(arm + _MEASURES[way] for arm, way in columns)]
        for frames in self.lengths:
            for part in self._parts:
                found = [cells[frames, part, arm, way] for arm, way in columns]
                if set(found) != {_NONE}:
                    yield [str(frames), part, *found]

    @property
    def _parts(self) -> list[str]:
        from hermes.evals.breakdown import labels  # noqa: PLC0415 - loads torch

        return labels(self.samples, self.by)

    @property
    def _ways(self) -> tuple[Measure, ...]:
        from hermes.evals.breakdown import measures  # noqa: PLC0415 - loads torch

        return measures(self.samples)

    def _evidence(self) -> list[Column]:
        """Two more columns: a heading, and the cell of a length and an arm."""
        traced = {(record["frames"], record["arm"]): record for record in self._traced()}

        def by_chance(frames: int, arm: str) -> str:
            share = traced[frames, arm]["chance"]
            return "" if share is None else f"{100 * share:.1f} %"

        return [("Evidence", lambda frames, arm: _cell(traced[frames, arm])), ("By chance", by_chance)]

    def _traced(self) -> list[dict[str, Any]]:
        from hermes.evals.shapes import tracing  # noqa: PLC0415 - loads torch

        records = []
        for frames in self.lengths:
            for arm in self.names:
                result, by_chance = tracing(self.samples, frames, arm)
                chance = by_chance if result.total else None
                records.append({"frames": frames, **self._arm(arm), **share_counts(result), "chance": chance})
        return records


def share_counts(result: Accuracy) -> dict[str, Any]:
    """A share of right answers as JSON has it, with its interval; null without questions."""
    low, high = result.interval
    return {
        "right": result.right,
        "total": result.total,
        "accuracy": result.share if result.total else None,
        "low": low,
        "high": high,
    }


def _spaced(cells: Sequence[str]) -> list[str]:
    return [f" {cell} " for cell in cells]


def _by_video(interval: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low_by_video": low, "high_by_video": high}


def share_cell(result: Accuracy) -> str:
    """The same in per cent, for a table."""
    return _cell(share_counts(result))


def _cell(counts: dict[str, Any]) -> str:
    if not counts["total"]:
        return _NONE
    share, low, high = (100 * counts[key] for key in ("accuracy", "low", "high"))
    return f"{share:.1f} % ({low:.1f} to {high:.1f}, n = {counts['total']})"


def _difference(comparison: Comparison) -> str:
    paired = comparison.paired
    if not paired.total:
        return _NONE
    difference, low, high = (100 * value for value in (paired.difference, *paired.interval))
    p = "p < 0.001" if paired.p_value < 0.001 else f"p = {paired.p_value:.3f}"
    return f"{difference:+.1f} ({low:+.1f} to {high:+.1f}, {p})"
