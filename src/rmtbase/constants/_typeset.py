"""Conversion of plain text with Unicode mathematics to LaTeX that needs no package, and of LaTeX to plain text."""

from __future__ import annotations

import re
from decimal import Decimal

_LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "zeta": "ζ",
    "theta": "θ",
    "kappa": "κ",
    "lambda": "λ",
    "mu": "μ",
    "nu": "ν",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "psi": "ψ",
    "Gamma": "Γ",
    "Delta": "Δ",
    "ell": "ℓ",
    "sum": "Σ",
    "infty": "∞",
    "to": "→",
    "times": "×",
    "pm": "±",
    "le": "≤",
    "sim": "~",
}
_RAISED = dict(zip("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", strict=True))
_LOWERED = dict(zip("0123456789+-", "₀₁₂₃₄₅₆₇₈₉₊₋", strict=True))
_COMMANDS = {sign: rf"\{command} " for command, sign in _LETTERS.items()} | {"−": "-", "%": r"\,\%"}
_SCRIPTS = {raised: sign for sign, raised in _RAISED.items()} | {"ᵀ": r"\top", "†": r"\dagger"}
_PROSE = {"%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_", "–": "--", "“": "``", "”": "''"}

_CLOSING = ",.;:)"
_JOINS = "/^_²⁰¹³⁴⁵⁶⁷⁸⁹ᵀ†("  # after a bracket: it is part of a formula
_SIGNS = re.escape("".join(_COMMANDS) + "".join(_SCRIPTS))
_IS_MATH = re.compile(
    rf".*[{_SIGNS}√_^=|<>/].*"  # letters and signs
    r"|[A-Za-z]\(.*|[-+]|[-+]?\d+(\.\d+)?|[B-Zb-z]|ln"  # functions, numbers, single letters except the article
)
_PLAIN_LIMITS = range(-3, 6)  # powers of ten of numbers that are written out


def prose_as_latex(text: str) -> str:
    """Convert text to LaTeX, with words that have Greek letters, indices, signs or digits set as mathematics."""
    return " ".join(map(_word_as_latex, _words(text))).replace("$ $", " ")


def _words(text: str) -> list[str]:
    """Split text at spaces, but not inside the brackets of a formula, as in N(0, σ²) or (λ − λ₊)/δ₊."""
    words, start = [], 0
    for space in re.finditer(" |$", text):
        opened = _open_brackets(text[start : space.start()])
        if space.start() == len(text) or not any(_of_formula(text, start + at) for at in opened):
            words.append(text[start : space.start()])
            start = space.end()
    return words


def _open_brackets(word: str) -> list[int]:
    """Positions of the brackets that a word opens and does not close."""
    opened: list[int] = []
    for at, sign in enumerate(word):
        if sign == "(":
            opened.append(at)
        elif sign == ")" and opened:
            opened.pop()
    return opened


def _of_formula(text: str, at: int) -> bool:
    """Return True if an opening bracket follows a letter or sign, or its closing one precedes a sign."""
    if at > 0 and text[at - 1] not in " (":
        return True
    depth = 0
    for end in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[end + 1 : end + 2] != "" and text[end + 1] in _JOINS
    return False


def _word_as_latex(word: str) -> str:
    opening = "(" if word.startswith("(") and not _of_formula(word, 0) else ""
    body = word[len(opening) :]
    while body and body[-1] in _CLOSING and not (body[-1] == ")" and body.count("(") == body.count(")")):
        body = body[:-1]
    closing = word[len(opening) + len(body) :]
    if _IS_MATH.fullmatch(body):
        return f"{opening}${mathematics_as_latex(body)}${closing}"
    return opening + "".join(_PROSE.get(sign, sign) for sign in body) + closing


def mathematics_as_latex(text: str) -> str:
    """Convert a word or number of mathematics, such as σ_Q² or 6.1×10⁻⁴, to LaTeX without dollar signs."""
    tex = re.sub(r"(?<![A-Za-z])ln(?![A-Za-z])", r"\\ln ", text)
    tex = re.sub(r"√([A-Za-z]+(?:_[A-Za-z]+)?|\d+)", r"\\sqrt{\1}", tex)
    tex = re.sub(r"([A-Za-z]{2,})_", r"\\mathrm{\1}_", tex)
    tex = re.sub(r"_([A-Za-z]{2,})", r"_{\\mathrm{\1}}", tex)
    tex = re.sub(r"\^(-?\w+)", r"^{\1}", tex)
    scripts = "".join(_SCRIPTS)
    tex = re.sub(f"[{scripts}]+", lambda match: "^{" + "".join(_SCRIPTS[sign] for sign in match[0]) + "}", tex)
    tex = "".join(_COMMANDS.get(sign, sign) for sign in tex).strip()
    return re.sub(r" (?=[ _^,)}])", "", tex)


def mathematics_as_text(tex: str) -> str:
    r"""Convert a symbol to Unicode as far as possible: ``\lambda_+`` to λ₊, ``\mu_{\mathrm{TW}_1}`` to μ_TW₁."""
    text = re.sub(r"\\mathrm\{([^{}]*)\}", r"\1", tex.replace(r"\textstyle", "").replace(r"\,", " "))
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1 / (\2)", text)
    text = re.sub(r"\\([A-Za-z]+) ?", lambda match: _LETTERS.get(match[1], f" {match[1]} "), text)
    text = re.sub(r"(?<=\{) | (?=\}|_)", "", text.replace("\\", ""))
    for mark, signs in (("^", _RAISED), ("_", _LOWERED)):
        marked = rf"\{mark}(?:\{{([0-9+-]+)\}}|([0-9+-]))(?![0-9.])"
        text = re.sub(marked, lambda match, signs=signs: "".join(signs[sign] for sign in match[1] or match[2]), text)
    text = re.sub(r"([_^])\{([^{}, ]*)\}", r"\1\2", text)
    return " ".join(text.split())


def shown_number(value: str, error: str = "") -> str:
    """Format a decimal, with its error if there is one, for a sentence: 1609.4 ± 0.4, 6.1×10⁻⁴."""
    number = Decimal(value)
    exponent = number.adjusted() if number else 0
    if exponent in _PLAIN_LIMITS:
        return f"{_plain(number)} ± {_plain(Decimal(error))}" if error else _plain(number)
    mantissa = _plain(number.scaleb(-exponent))
    if error:
        mantissa = f"({mantissa} ± {_plain(Decimal(error).scaleb(-exponent))})"
    return f"{mantissa}×10" + "".join(_RAISED[sign] for sign in str(exponent))


def _plain(number: Decimal) -> str:
    return f"{number:f}".replace("-", "−")
