"""Which file may import what, and that CONTRIBUTING.md names every file."""

from __future__ import annotations

import ast
import subprocess
import sys
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path.relative_to(ROOT).as_posix() for top in ("hermes", "hermes_cli") for path in (ROOT / top).rglob("*.py"))
MODULES = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in FILES}

WALLS = {
    "av": ["hermes/sources/*", "hermes/tiny/*"],
    "bitsandbytes": ["hermes/models/quantisation.py", "hermes_cli/checks.py"],
    "cv2": ["hermes/sources/*"],
    "hermes_cli": ["hermes_cli/*"],
    "matplotlib": ["hermes_cli/drawing/curves.py"],
    "huggingface_hub": ["hermes_cli/checks.py", "hermes_cli/hub.py"],
    "rich": ["hermes_cli/*"],
    "transformers": [
        "hermes/attention.py",
        "hermes/cache.py",
        "hermes/generate.py",
        "hermes/models/*",
        "hermes/tiny/*",
        "hermes_cli/loading.py",
    ],
    "typer": ["hermes_cli/*"],
}
"""Package to the files that may import it."""


def imports(file: str) -> set[str]:
    """Every module that a file imports, wherever in it; `from a import b` gives both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            assert node.module
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= named if named <= MODULES.keys() else named | {node.module}  # only modules: not what the package offers
    return found


@pytest.mark.parametrize("package", WALLS)
def test_a_package_is_imported_only_behind_its_wall(package: str) -> None:
    importers = {file for file in FILES if any(name.split(".")[0] == package for name in imports(file))}
    assert {file for file in importers if not any(fnmatch(file, allowed) for allowed in WALLS[package])} == set()


def test_imports_never_run_in_a_circle() -> None:
    graph = {module: (imports(file) & MODULES.keys()) - {module} for module, file in MODULES.items()}
    TopologicalSorter(graph).prepare()


def test_help_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from hermes_cli.app import main; codes = [main(['--help']), main(['watch', '--help'])]; "
        "sys.exit(str(codes) if any(codes) else ' '.join({'torch', 'transformers'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--kv-budget" in done.stdout


def test_the_file_map_names_every_file_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    mapped = {word for word in text.replace("`", " ").split() if word.endswith(".py") and word.startswith("hermes")}
    assert mapped == set(FILES)
