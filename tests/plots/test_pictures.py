"""Figures in notebooks, in files, and in a user's own style."""

import base64
import re

import matplotlib
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.colors import to_hex, to_rgb

from exhaustive import mostly_exhaustive
from rmtbase.drawing.figure import save
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.drawing.texts import rounded
from rmtbase.drawing.theme import LIGHT
from rmtbase.errors import MissingFileError, OutputError, ParameterError, RmtbaseWarning
from rmtbase.results.figures import figures

STYLE = """
font.family: serif
font.serif: STIXGeneral
font.size: 8
axes.labelsize: 7.5
mathtext.fontset: stix
text.color: 101010
patch.facecolor: 445566
axes.prop_cycle: cycler("color", ["aa0000", "00aa00", "0000aa"])
"""
BEGINNINGS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def drawn(baseline):
    """The figures of one shape."""
    return figures(baseline.isel(case=[0]), names=["*-32x8"])


@pytest.fixture(scope="module")
def figure(drawn):
    return drawn["null-spectrum-32x8"]


@pytest.fixture
def style(tmp_path):
    path = tmp_path / "paper.mplstyle"
    path.write_text(STYLE)
    return path


def image_in(html):
    return base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", html).group(1))


@pytest.mark.exhaustive
def test_a_figure_and_its_axes_show_themselves_in_a_notebook_and_to_ipython(baseline, drawn, figure):
    for one in (figure, null_spectrum(baseline)):
        assert one._repr_png_().startswith(BEGINNINGS["png"])
        kind, html = one._mime_()
        assert kind == "text/html"
        assert html == one._repr_html_()
        assert image_in(html).startswith(BEGINNINGS["png"])
    assert drawn._repr_html_().count("<figcaption>") == len(drawn) == 3
    formatter = DisplayFormatter()
    for one in (null_spectrum(baseline), drawn, figure):
        shown, _ = formatter.format(one)
        assert {"image/png", "text/html"} & set(shown)


@pytest.mark.parametrize("kind", mostly_exhaustive(BEGINNINGS, always=2))
def test_a_suffix_says_what_is_written(kind, baseline, figure, tmp_path):
    path = tmp_path / f"one.{kind}"
    assert save(figure, path) == [path]
    assert path.read_bytes().startswith(BEGINNINGS[kind])
    first = path.read_bytes()
    save(null_spectrum(baseline), path)  # a picture of that kind is replaced
    assert path.read_bytes().startswith(BEGINNINGS[kind])
    save(figure, path)
    assert path.read_bytes() == first  # no date, no random name


def test_a_pdf_has_a_page_for_each_figure_and_a_folder_a_file(drawn, tmp_path):
    save(drawn, tmp_path / "all.pdf")
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "all.pdf").read_bytes())) == len(drawn)
    assert save(drawn, tmp_path / "folder", format="svg") == [tmp_path / "folder" / f"{name}.svg" for name in drawn]
    with pytest.raises(ParameterError, match="one figure for a file of format png"):
        save(drawn, tmp_path / "all.png")


def test_what_cannot_be_written_is_refused_and_a_file_of_another_kind_is_not_overwritten_unasked(figure, tmp_path):
    for name, options, words in (
        ("fig.jpg", {}, ".pdf, .svg, .png"),
        ("fig.pdf", {"format": "svg"}, "format = 'svg'"),
        ("folder", {"format": "gif"}, "pdf, svg, png"),
        ("fig.png", {"dpi": 1e6}, "dpi"),
        ("fig.png", {"dpi": 0}, "dpi"),
    ):
        with pytest.raises(ParameterError, match=re.escape(words)):
            save(figure, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "thesis.pdf"
    path.write_text("years of work")
    with pytest.raises(OutputError, match="no PDF"):
        save(figure, path)
    assert path.read_text() == "years of work"
    save(figure, path, overwrite=True)
    assert path.read_bytes().startswith(BEGINNINGS["pdf"])


def test_a_style_file_goes_before_the_theme(baseline, style, tmp_path):
    before = dict(matplotlib.rcParams)
    theme = LIGHT.with_style(style)
    assert (theme.free_law, theme.naive) == (theme.observed, theme.flagged)
    assert [to_hex(one) for one in theme.series] == ["#aa0000", "#00aa00", "#0000aa"]
    assert to_rgb(theme.null) == to_rgb("#445566")
    assert theme.surface == LIGHT.surface  # of which the style says nothing
    figure = figures(baseline, theme=theme)["null-spectrum-32x8"]
    (ax,) = figure.axes
    assert (ax.xaxis.label.get_fontsize(), ax.title.get_fontsize()) == (7.5, pytest.approx(8.4))
    assert to_rgb(ax.xaxis.label.get_color()) == to_rgb("#101010")
    save(figure, tmp_path / "one.pdf")
    fonts = set(re.findall(rb"/BaseFont /(?:\w+\+)?([\w-]+)", (tmp_path / "one.pdf").read_bytes()))
    assert fonts
    assert all(name.startswith(b"STIX") for name in fonts), fonts
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("content", ["font.size: huge", "axes.prop_cycle: cycler(", "\xff\xfe"])
def test_what_is_no_style_is_refused(content, style, tmp_path):
    style.write_bytes(content.encode("latin-1"))
    with pytest.raises(ParameterError, match="a Matplotlib style file"):
        LIGHT.with_style(style)
    with pytest.raises(MissingFileError, match="style file"):
        LIGHT.with_style(tmp_path / "none.mplstyle")


VAIN = [
    ("text.usetex: True", "text.usetex and text.latex have no effect"),
    (r"text.latex.preamble: \usepackage{stix}", "text.usetex and text.latex have no effect"),
    ("font.family: No Such Font", "font.family: No Such Font not installed; the default is used"),
    ("font.family: No Such Font, STIXGeneral", "font.family: No Such Font not installed; STIXGeneral is used"),
    ("font.serif: No Such, No Other", "font.serif: No Such, No Other not installed; the default is used"),
    ("mathtext.rm: No Such Font:italic", "mathtext.rm: No Such Font:italic not installed; the default is used"),
    ("no.such.key: 3", "no.such.key"),
]


@pytest.mark.parametrize(("line", "said"), VAIN)
def test_what_has_no_effect_in_a_style_is_a_warning(line, said, style):
    style.write_text(f"font.size: 9\n{line}\n")
    with pytest.warns(RmtbaseWarning, match=re.escape(said)) as warned:
        theme = LIGHT.with_style(style)
    assert len(warned) == 1
    assert theme.settings["font.size"] == 9.0
    assert theme.settings.get("font.family") in (None, ["STIXGeneral"])


def test_a_style_with_a_font_that_is_there_says_nothing(style):
    for line in ("text.usetex: False", "font.sans-serif: No Such, DejaVu Sans", "font.family: serif"):
        style.write_text(f"{line}\n")
        LIGHT.with_style(style)


def test_a_baseline_has_a_figure_of_singular_values(baseline):
    ax = null_spectrum(baseline, singular_values=True)
    of_eigenvalues = null_spectrum(baseline)
    for line, squared in zip(ax.get_lines(), of_eigenvalues.get_lines(), strict=True):
        s, x = (np.asarray(one.get_xdata(), float) for one in (line, squared))
        np.testing.assert_allclose(s**2, x, rtol=1e-12)
        if len(s) > 2:  # a density, not an edge
            np.testing.assert_allclose(line.get_ydata(), 2 * s * squared.get_ydata(), rtol=1e-9)
    assert "singular value $s$" in ax.get_xlabel()
    assert "null-singular-values-32x8" in figures(baseline, names=["null-singular-values-32x8"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((2.351e-5, 1.912e-4), (r"$2.351 \times 10^{-5}$", r"$1.912 \times 10^{-4}$")),
        ((0.2, 2e6), (r"$2 \times 10^{-1}$", r"$2 \times 10^{6}$")),
        ((0.0, 3e-7), ("0", r"$3 \times 10^{-7}$")),
        ((0.3072, 2.765), ("0.3072", "2.765")),
        ((41.5, 159965.2), ("41.5", "159965")),
    ],
)
def test_numbers_beside_each_other_have_one_format(values, expected):
    assert tuple(rounded(value, 4, values) for value in values) == expected
