"""Build the source distributions and wheels of both packages, from a copy of the files that git knows.

PyPI shows README.md, where relative links lead nowhere. With ``--url`` the copy's README and metadata refer to that
repository; the checkout is not changed. Without it links stay relative, and the packages name no URL.

    python packaging/build_dist.py --out dist [--url https://HOST/OWNER/tensorwise]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|mailto:|#)([^)\s]+)\)")
"""A relative link or picture in Markdown: mark of a picture, text, target."""
PAGES: Final = {"Homepage": "", "Repository": "", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
"""Name of a project URL -> its path below the repository's URL."""


def absolute_links(text: str, url: str, tag: str) -> str:
    """Return Markdown whose relative links refer to files of a repository.

    Args:
        text: Markdown of a page in the repository's root.
        url: of the repository, without a slash at its end.
        tag: the release's tag or branch.

    >>> absolute_links("[a](docs/a.md#b) ![c](c.svg) [d](https://d.org)", "https://host/me/it", "v1")
    '[a](https://host/me/it/blob/v1/docs/a.md#b) ![c](https://host/me/it/raw/v1/c.svg) [d](https://d.org)'
    """
    return LINK.sub(
        lambda found: (
            f"{found[1]}[{found[2]}]({url}/{'raw' if found[1] else 'blob'}/{tag}/{found[3].removeprefix('./')})"
        ),
        text,
    )


def with_urls(text: str, url: str) -> str:
    """Return a pyproject.toml with a table of project URLs, which names this repository."""
    rows = "".join(f'{name} = "{url}{path}"\n' for name, path in PAGES.items())
    return f"{text.rstrip()}\n\n[project.urls]\n{rows}"


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files that git tracks or would add; without git, all but what builds leave behind."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (source / ".git").exists():
        listed = subprocess.run(command, cwd=source, check=True, capture_output=True).stdout
        for name in filter(None, os.fsdecode(listed).split("\0")):
            needed = "/" not in name or name.startswith(("tensorwise/", "models/"))
            if needed and (source / name).is_file():  # not one that was just deleted
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, target / name)
    else:
        left = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*")
        shutil.copytree(source, target, ignore=left, dirs_exist_ok=True)


def build(out: Path, url: str) -> None:
    """Build both packages into an empty folder.

    Args:
        out: the folder; older distributions in it are removed.
        url: of the repository; empty: links stay relative.
    """
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="tensorwise-dist-") as scratch:
        tree = Path(scratch) / "tree"
        copy_tree(ROOT, tree)
        if url:
            for project in (tree, tree / "models"):
                metadata, page = project / "pyproject.toml", project / "README.md"
                tag = f"v{tomllib.loads(metadata.read_text())['project']['version']}"
                below = f"{tag}/{project.relative_to(tree)}" if project != tree else tag
                page.write_text(absolute_links(page.read_text(), url, below))
                metadata.write_text(with_urls(metadata.read_text(), url))
        for project in (tree, tree / "models"):
            command = [sys.executable, "-m", "build", "--outdir", str(out.absolute()), str(project)]
            subprocess.run(command, check=True)
            # what the tree gives; try_dist.py compares it with the wheel from the source distribution
            direct = [*command[:-1], "--wheel", str(project)]
            direct[4] = str(out.absolute() / "from-tree")
            subprocess.run(direct, check=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Build the source distributions and wheels of both packages."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--url", default="", help="URL of the public repository, for links of README.md")
    given = parser.parse_args(arguments)
    url = given.url.rstrip("/")
    if url and not url.startswith("https://"):
        parser.error(
            f"--url is {given.url!r}; expected the repository's address, as in https://HOST/OWNER/NAME"
        )
    build(given.out, url)


if __name__ == "__main__":
    main()
