"""The import graph sees each kind of import, and circles of modules and of packages."""

from __future__ import annotations

from pathlib import Path

from import_graph import Kind, circles, package_circles, read_imports, union

_MODULES = {
    "top/a/one.py": "from top.a import two\n",
    "top/a/two.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from top.a.three import X\n"
        "else:\n    import top.b.four\n"
    ),
    "top/a/three.py": "class C:\n    def f(self):\n        from top.a import one\n",
    "top/b/four.py": "try:\n    import top.a.three\nexcept ImportError:\n    pass\n",
    "top/b/__init__.py": "import os\n",
}


def test_circles_depend_on_the_kinds_of_imports(tmp_path: Path) -> None:
    for name, text in _MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    imports = read_imports(tmp_path)
    loaded = imports[Kind.LOADED]
    assert loaded["top.a.two"] == {"top.b.four"}
    assert imports[Kind.NEVER]["top.a.two"] == {"top.a.three"}
    assert imports[Kind.CALLED]["top.a.three"] == {"top.a.one"}
    assert circles(loaded) == circles(union((loaded, imports[Kind.NEVER]))) == []
    everything = ["top.a.one", "top.a.three", "top.a.two", "top.b.four"]
    assert circles(union((loaded, imports[Kind.CALLED]))) == [everything]
    assert package_circles(loaded) == [["top.a", "top.b"]]
