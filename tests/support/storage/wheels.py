"""Small packages in a folder, which uv finds there: no index is asked."""

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def add_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """Write a package with one module, whose `VERSION` is the package's."""
    folder.mkdir(parents=True, exist_ok=True)
    tag = f"{name}-{version}"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{tag}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + needs,
        f"{tag}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_hash(text)},{len(text)}\n" for path, text in files.items())
    files[f"{tag}.dist-info/RECORD"] = f"{record}{tag}.dist-info/RECORD,,\n"
    path = folder / f"{tag}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def variables(folder: Path, cache: Path) -> dict[str, str]:
    """Return uv's variables by which it uses these packages alone."""
    return {
        "UV_FIND_LINKS": str(folder),
        "UV_NO_INDEX": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_CACHE_DIR": str(cache),
    }


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`alpha` 1.0, which needs `beta`; `gamma`, which needs `torch`; and a `torch` 99."""
    folder = tmp_path / "wheels"
    add_wheel(folder, "alpha", "1.0", ["beta>=1"])
    add_wheel(folder, "beta", "1.5")
    add_wheel(folder, "gamma", "1.0", ["torch>=2"])
    add_wheel(folder, "torch", "99.0")
    for name, value in variables(folder, tmp_path / "uv-cache").items():
        monkeypatch.setenv(name, value)
    return folder
