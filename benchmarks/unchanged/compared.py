"""Comparison of two installations' entries: the same to the bit, within a stated bound, or different."""

import dataclasses
import html
import re
from collections.abc import Mapping

import numpy as np
import stated
from entries import without_code

MOST_SHOWN = 40
WHITE_SPACE_ONLY = -1.0
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


@dataclasses.dataclass
class Section:
    """Outcome of one section: how many entries were compared, which are not the same, and how they differ."""

    name: str
    compared: int = 0
    same: int = 0
    rounding: dict[str, str] = dataclasses.field(default_factory=dict)
    stated: dict[str, str] = dataclasses.field(default_factory=dict)
    different: dict[str, str] = dataclasses.field(default_factory=dict)
    new: list[str] = dataclasses.field(default_factory=list)

    def line(self) -> str:
        """Format a row of the table."""
        counts = (self.compared, self.same, len(self.rounding), len(self.stated), len(self.different), len(self.new))
        return f"{self.name:<18}" + "".join(f"{count:>12}" for count in counts)

    def record(self) -> dict[str, object]:
        """Convert the outcome to plain values for a file."""
        return dataclasses.asdict(self)


def section(name: str, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Section:
    """Compare all entries of a section."""
    result = Section(name, compared=len(before))
    used = set()
    for entry, old in before.items():
        place = entry if entry in after else stated.moved(entry)
        used.add(place)
        full = f"{name}/{entry}"
        difference, size = differing(old, after[place]) if place in after else ("is gone", np.inf)
        if not difference and place == entry:
            result.same += 1
        elif not difference:
            result.stated[entry] = f"moved to {place}"
        elif stated.may_be_spaced_otherwise(full) if size == WHITE_SPACE_ONLY else size <= stated.bound(full):
            result.rounding[entry] = difference
        elif place in after and stated.may_be_reworded(full) and _same_numbers(old, after[place]):
            result.stated[entry] = f"{difference} (other words, the same numbers)"
        elif why := stated.reason(full):
            result.stated[entry] = f"{difference} ({why})"
        else:
            result.different[entry] = difference
    result.new = [entry for entry in after if entry not in used]
    return result


def differing(old: np.ndarray, new: np.ndarray) -> tuple[str, float]:
    """Describe how two values differ (empty if not at all), and how far: relatively, or only in a page's spacing."""
    if old.dtype.kind == "U" and new.dtype.kind == "U" and old.shape == new.shape:
        return (_first_text(old, new), _text_size(old, new)) if (old != new).any() else ("", 0.0)
    if old.shape != new.shape or old.dtype.kind != new.dtype.kind or old.dtype.itemsize != new.dtype.itemsize:
        return f"{_kind(old)} is now {_kind(new)}", np.inf
    if old.dtype.kind not in "fc":
        return ("", 0.0) if (old == new).all() else (f"{np.sum(old != new)} of {old.size} differ", np.inf)
    same = (old == new) & (np.signbit(old.real) == np.signbit(new.real)) | (np.isnan(old) & np.isnan(new))
    if same.all():
        return "", 0.0
    with np.errstate(all="ignore"):
        relative = np.where(same, 0.0, np.abs(new - old) / np.maximum(np.abs(old), np.finfo(old.dtype).tiny))
    size = float(np.max(np.where(np.isnan(relative), np.inf, relative)))
    place = np.unravel_index(np.argmax(np.where(np.isnan(relative), np.inf, relative)), old.shape)
    return f"{np.sum(~same)} of {old.size}, by {size:.2g} relative: {old[place]!r} is now {new[place]!r}", size


def _kind(value: np.ndarray) -> str:
    shown = f" {str(value)[:100]!r}" if value.size == 1 else ""
    return f"{value.dtype.name} of shape {value.shape}{shown}"


def _text_size(old: np.ndarray, new: np.ndarray) -> float:
    pairs = zip(old.ravel(), new.ravel(), strict=True)
    return WHITE_SPACE_ONLY if all(_read(str(one)) == _read(str(other)) for one, other in pairs) else np.inf


def _read(page: str) -> str:
    """Reduce a page to what a reader gets: entities resolved, white space left out."""
    return without_code("".join(html.unescape(page).split()))


def _same_numbers(old: np.ndarray, new: np.ndarray) -> bool:
    """Return whether two texts have the same numbers in them, in any order; pictures in a page are left out."""
    if old.dtype.kind != "U" or new.dtype.kind != "U":
        return False
    one, other = (sorted(_NUMBER.findall(_without_pictures(" ".join(text.ravel())))) for text in (old, new))
    return one == other


def _without_pictures(page: str) -> str:
    return html.unescape(re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))


def _first_text(old: np.ndarray, new: np.ndarray) -> str:
    for one, other in zip(old.ravel(), new.ravel(), strict=True):
        rows, others = str(one).splitlines() or [""], str(other).splitlines() or [""]
        for row, text in zip(rows, others, strict=False):
            if row != text:
                start = max(next((at for at, (a, b) in enumerate(zip(row, text, strict=False)) if a != b), 0) - 30, 0)
                return f"{row[start : start + 160]!r} is now {text[start : start + 160]!r}"
        if len(rows) != len(others):
            return f"{len(rows)} lines are now {len(others)}: {(rows + others)[min(len(rows), len(others))][:160]!r}"
        if one != other:
            return "the ends of lines differ"
    return ""


def report(results: list[Section]) -> str:
    """Format the entries that are not the same, and the table below them."""
    lines = []
    for result in results:
        for title in ("different", "rounding", "stated"):
            found = getattr(result, title)
            lines += [f"{result.name}: {title}: {entry}: {what}" for entry, what in [*found.items()][:MOST_SHOWN]]
            lines += [f"{result.name}: {title}: and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else []
        shown = ", ".join(result.new[:MOST_SHOWN])
        lines += [f"{result.name}: new: {shown}"] if result.new else []
    heads = ("compared", "the same", "rounding", "stated", "different", "new")
    lines += ["", f"{'section':<18}" + "".join(f"{head:>12}" for head in heads)]
    return "\n".join([*lines, *(result.line() for result in results)])
