"""Choose the tests that mirror a module: its folder's, those of the module itself first, and those one folder above."""

from pathlib import Path


def mirrored_folder(module: Path, root: Path) -> Path:
    """Return the folder of tests that mirrors a module's, or the nearest folder above that has tests."""
    folder = root / "tests" / module.parent
    while not any(folder.glob("test_*.py")):
        folder = folder.parent
    return folder.relative_to(root)


def near_tests(module: Path, root: Path) -> list[Path]:
    """Return the files of the folder above the mirrored one: tests of what the module is a part of."""
    above = (root / mirrored_folder(module, root)).parent
    return [file.relative_to(root) for file in sorted(above.glob("test_*.py"))]


def nearest_first(module: Path, root: Path) -> list[Path]:
    """Return the files of the mirrored folder: the module's own tests, those that name the module, then the rest."""
    dotted = ".".join(module.with_suffix("").parts)

    def distance(file: Path) -> int:
        if file.name == f"test_{module.name}":
            return 0
        return 1 if dotted in file.read_text(encoding="utf-8") else 2

    files = sorted((root / mirrored_folder(module, root)).rglob("test_*.py"))
    return [file.relative_to(root) for file in sorted(files, key=distance)]
