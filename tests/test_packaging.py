"""What a release is made of agrees with itself: version, changes, long description, recipe, workflows."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
CHECK = runpy.run_path(str(ROOT / ".ci" / "release_check.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CONDA_NAMES = {"matplotlib": "matplotlib-base", "huggingface-hub": "huggingface_hub", "netcdf4": "netcdf4"}
FIRST, LAST = 11, 14


@pytest.fixture
def tree(tmp_path):
    """The files that say a version, to be changed."""
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "conda/recipe/recipe.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def edit(path: Path, *replacements: tuple[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")


def requirements(lines) -> dict[str, str]:
    """The bound of each package, by its name in lower case."""
    found = (re.match(r"([\w.-]+?)\s*((?:>=|==).*)?$", line) for line in lines)
    return {one[1].lower(): (one[2] or "").replace(" ", "") for one in found}


def test_one_version_everywhere():
    assert CHECK["faults"]() == []


def test_release_of_a_tag_is_let_through_and_tells_its_changes(tree):
    version = PROJECT["version"]
    released = f"## [{version}] - 2026-01-31\n\n### Added\n\n- All.\n\n## [0.0.1] - 2025-01-01\n\nNo.\n"
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{released}", encoding="utf-8")
    assert CHECK["faults"](f"v{version}", tree) == []
    assert CHECK["changes"](tree)[version] == ("2026-01-31", "### Added\n\n- All.")


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("CITATION.cff", "\nversion: ", "\nversion: 9", "CITATION.cff says 9"),
        ("conda/recipe/recipe.yaml", '  version: "', '  version: "9', "recipe.yaml says 9"),
        ("pyproject.toml", '\nversion = "', '\nversion = "9', "CHANGELOG.md has no heading ## [9"),
        ("CHANGELOG.md", "## [Unreleased]", "## [Unreleased]\n\n## [0.1.0] - 2026-01-31", "has ## [0.1.0] 2 times"),
        ("CHANGELOG.md", "## [Unreleased]", "## Unreleased", "does not begin with ## [Unreleased]"),
    ],
)
def test_version_that_differs_is_named(name, old, new, said, tree):
    edit(tree / name, (old, new))
    assert any(said in fault for fault in CHECK["faults"](None, tree))


@pytest.mark.parametrize(
    ("tag", "said"),
    [("0.1.0", "expected vX.Y.Z"), ("v99.0.0", "pyproject.toml says"), (f"v{PROJECT['version']}", "no dated heading")],
)
def test_tag_that_does_not_fit_is_refused(tag, said, tree):
    edit(tree / "CHANGELOG.md", ("## [Unreleased]", f"## [Unreleased]\n\n- More.\n\n## [{PROJECT['version']}]\n\nAll."))
    assert any(said in fault for fault in CHECK["faults"](tag, tree))
    assert any("under Unreleased still" in fault for fault in CHECK["faults"](f"v{PROJECT['version']}", tree))


def test_notes_are_of_a_tag():
    ended = subprocess.run(
        [sys.executable, ROOT / ".ci" / "release_check.py", "--notes"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ended.returncode == 2
    assert "--notes are of a tag: name it" in ended.stderr


def test_long_description_has_no_link_or_figure_that_an_index_cannot_follow():
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    readme = (ROOT / hook["fragments"][0]["path"]).read_text(encoding="utf-8")
    shown = readme
    for one in hook["substitutions"]:
        shown = re.sub(one["pattern"], one["replacement"], shown)
    code = re.compile(r"^```.*?^```$", flags=re.MULTILINE | re.DOTALL)
    assert code.findall(shown) == code.findall(readme)
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", code.sub("", shown)) == []
    captions = re.findall(r"!\[([^\]]*)\]\((?!https?://)", code.sub("", readme))
    assert all(f"*Figure: {caption}.*" in shown for caption in captions)
    assert PROJECT["dynamic"] == ["readme"]


def test_recipe_asks_for_what_the_package_asks_for():
    text = (ROOT / "conda" / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text)
    ours = {CONDA_NAMES.get(name, name): bound for name, bound in requirements(PROJECT["dependencies"]).items()}
    python, *others = recipe["requirements"]["run"]
    assert requirements(others) == ours
    assert python == "python >=${{ python_min }}"
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    host = requirements(line for line in recipe["requirements"]["host"] if not line.startswith(("python ", "pip")))
    assert host == requirements(PYPROJECT["build-system"]["requires"])
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"rmtbase = {PROJECT['scripts']['rmtbase']}"
    assert recipe["about"]["license"] == PROJECT["license"]


def test_classifiers_and_workflows_are_of_the_same_pythons():
    pythons = [f"3.{minor}" for minor in range(FIRST, LAST + 1)]
    assert [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)] == pythons
    workflows = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in ROOT.glob(".github/workflows/*.yml")
    }
    assert workflows["ci"]["jobs"]["quick"]["strategy"]["matrix"]["python"] == pythons
    release = workflows["release"]["jobs"]
    assert set(release["wheel"]["strategy"]["matrix"]["python"]) == {pythons[0], pythons[-1]}
    assert release["publish"]["permissions"] == {"id-token": "write"}
    assert [release[job].get("needs") for job in ("build", "wheel", "publish", "github")] == [
        None,
        "build",
        "wheel",
        "publish",
    ]
    for workflow in workflows.values():
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                for path in re.findall(r"(?:tests|\.ci|benchmarks)/[\w./]+", step.get("run", "")):
                    assert (ROOT / path).exists(), path
                secret = set(re.findall(r"secrets\.\w+", str(step)))
                assert secret <= ({"secrets.HF_TOKEN"} if "studies.sources" in step.get("run", "") else set()), secret
    assert [*workflows["sources"][True]] == ["workflow_dispatch"]  # its token for gated models, by hand only


def test_actions_are_pinned_by_commit():
    floating = {"pypa/gh-action-pypi-publish@release/v1"}  # has to know the metadata that the build writes
    for path in ROOT.glob(".github/workflows/*.yml"):
        for action in re.findall(r"uses: (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert action in floating or re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+", action), action
