"""What is built for others agrees with pyproject.toml: conda recipes, the oldest versions, links of README.md.

The distributions themselves are built, installed and used by ``make test-dist``.
"""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tensorwise.sparse.prebuilt import PROCESSOR_LEVELS

ROOT: Final = Path(__file__).parents[2]
PROJECTS: Final = {"tensorwise": ROOT, "tensorwise-models": ROOT / "models"}


def project(name: str) -> dict[str, Any]:
    return tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text())


def parts(requirement: str) -> tuple[str, str]:
    """Return name and bounds of a requirement, whether pip's or conda's."""
    found = re.fullmatch(r"([\w.-]+)\s*(.*)", requirement)
    assert found
    return found[1], found[2]


def loaded(name: str) -> ModuleType:
    """Return a script of packaging/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PROJECTS)
def test_the_conda_recipe_says_what_pyproject_says(name: str) -> None:
    recipe = (ROOT / "packaging" / "conda" / name / "recipe.yaml").read_text()
    listed = {
        section: dict(map(parts, re.findall(r"^    - (.+)$", lines, re.MULTILINE)))
        for section, lines in re.findall(r"^  (host|run):\n((?:    - .+\n)+)", recipe, re.MULTILINE)
    }
    about, built = project(name)["project"], project(name)["build-system"]["requires"]
    python = {"python": about["requires-python"]}
    assert listed["run"] == {**python, **dict(map(parts, about["dependencies"]))}
    assert listed["host"] == {**python, "pip": "", **dict(map(parts, built))}
    assert f'version: "{about["version"]}"' in recipe
    assert about["description"] in recipe
    assert f"license: {about['license']}" in recipe
    for script, target in about.get("scripts", {}).items():
        assert f"- {script} = {target}" in recipe


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """``make test-oldest`` tries what pyproject.toml promises: 1.26 and 1.26.0 are one version."""
    pinned = dict(
        re.findall(r"^([\w-]+)==(.+)$", (ROOT / "packaging" / "oldest.txt").read_text(), re.MULTILINE)
    )
    bounds = dict(map(parts, project("tensorwise")["project"]["dependencies"]))
    assert pinned.keys() == bounds.keys()
    for name, bound in bounds.items():
        lowest, version = bound.removeprefix(">=").split("."), pinned[name].split(".")
        assert version[: len(lowest)] == lowest, name
        assert all(int(part) <= 1 for part in version[len(lowest) :]), name


def test_links_become_absolute_only_with_a_url() -> None:
    dist = loaded("build_dist")
    text = (ROOT / "README.md").read_text()
    url = "https://host.invalid/owner/name"
    assert dist.LINK.search(text)
    absolute = dist.absolute_links(text, url, "v1")
    assert not dist.LINK.search(absolute)
    assert f"]({url}/raw/v1/docs/assets/speed.svg)" in absolute
    assert f"]({url}/blob/v1/docs/arrays.md)" in absolute
    back = absolute.replace(f"{url}/raw/v1/", "").replace(f"{url}/blob/v1/", "")
    assert back == text, "more than links was changed"


def test_urls_stand_in_one_place() -> None:
    dist, text = loaded("build_dist"), (ROOT / "pyproject.toml").read_text()
    assert "urls" not in tomllib.loads(text)["project"], "make dist URL=... writes them"
    changed = tomllib.loads(dist.with_urls(text, "https://host.invalid/owner/name"))
    assert changed["project"].pop("urls")["Issues"] == "https://host.invalid/owner/name/issues"
    assert changed == tomllib.loads(text)


@pytest.mark.parametrize("url", ["http://host.invalid", "owner/name"])
def test_a_url_that_is_none_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        loaded("build_dist").main(["--url", url])
    assert "expected the repository's address" in capsys.readouterr().err


def test_the_tag_of_a_wheel_of_kernels_names_the_newest_glibc_that_it_needs(tmp_path: Path) -> None:
    module = loaded("build_kernels")
    (tmp_path / "level").mkdir()
    (tmp_path / "level" / "a.so").write_bytes(b"\x7fELF GLIBC_2.2.5\0GLIBC_2.6\0")
    assert module.platform_tag(tmp_path, "x86_64") == "manylinux_2_17_x86_64"
    (tmp_path / "b.so").write_bytes(b"\x7fELF GLIBC_2.17\0GLIBC_2.34\0")
    assert module.platform_tag(tmp_path, "aarch64") == "manylinux_2_34_aarch64"


def test_wheels_of_kernels_hold_every_level() -> None:
    assert {level for levels in loaded("build_kernels").LEVELS.values() for level in levels} == {
        *PROCESSOR_LEVELS
    }
