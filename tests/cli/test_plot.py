"""``rmtbase plot``: what is written where."""

from pathlib import Path

import pytest

from rmtbase.cli import main

STYLE = Path(__file__).parents[2] / "examples" / "paper" / "paper.mplstyle"
NAMES = ["null-spectrum-32x8", "ordered-eigenvalues-32x8", "baseline"]


def test_a_name_with_a_suffix_is_a_file_unless_a_folder_is_there(run, null_file, tmp_path):
    path = tmp_path / "fig.pdf"
    ran = run("plot", null_file, "-o", path)
    assert (ran.status, ran.err) == (0, f"rmtbase: wrote {path}\n")
    assert path.read_bytes().startswith(b"%PDF-")
    ran = run("plot", null_file, "--format", "svg", "-o", tmp_path / "folder")
    assert [one.name for one in sorted((tmp_path / "folder").iterdir())] == [
        f"null-{name}.svg" for name in sorted(NAMES)
    ]
    (tmp_path / "a.pdf").mkdir()
    (tmp_path / "v1.2").mkdir()
    ran = run("plot", null_file, "-o", tmp_path / "a.pdf")
    assert (ran.status, list((tmp_path / "a.pdf").iterdir())) == (2, [])
    assert "a folder of that name is there" in ran.err
    assert run("plot", null_file, "-o", tmp_path / "v1.2").status == 0


def test_one_figure_in_the_style_of_a_paper(run, null_file, tmp_path):
    path = tmp_path / "spectrum.pdf"
    chosen = ("--only", NAMES[0], "--style", STYLE, "--width", 3.4, "--theme", "print")
    assert run("plot", null_file, *chosen, "-o", path).status == 0
    content = path.read_bytes()
    assert b"STIX" in content
    assert b"DejaVu" not in content
    width = float(content.split(b"/MediaBox [ 0 0 ")[1].split()[0])
    assert width == pytest.approx(3.4 * 72)


@pytest.mark.exhaustive
def test_what_a_style_file_sets_in_vain_is_told(run, null_file, tmp_path):
    style = tmp_path / "old.mplstyle"
    style.write_text("font.size: 8\nno.such.key: 1\n")
    ran = run("plot", null_file, "--style", style, "-o", tmp_path / "figures")
    assert ran.status == 0
    assert ran.err.startswith("rmtbase: old.mplstyle: Bad key no.such.key")


def test_a_dash_is_stdout(null_file, capsysbinary):
    command = ["plot", str(null_file), "--only", NAMES[0], "-o", "-"]
    for options, start in (([], b"\x89PNG"), (["--format", "pdf"], b"%PDF-"), (["--format", "svg"], b"<?xml")):
        with pytest.raises(SystemExit) as left:
            main([*command, *options])
        said = capsysbinary.readouterr()
        assert (left.value.code, said.err) == (0, b"")
        assert said.out.startswith(start)
