"""The modules of the workspace's crates without their tests, for the checks in this folder."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Comments, strings and character literals. A lifetime has no closing quote.
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^\n]*?|[^\\'\n])'""", re.DOTALL
)
TEST = re.compile(
    r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*"
    r"(?:pub\S*\s+)?mod (\w+)\s*([{;])"
)
CHILD = re.compile(r"\bmod (\w+)\s*;")


def crates():
    """The folders of the crates, those of `bindings/` last."""
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    excluded = {ROOT / folder for folder in members["exclude"]} - {ROOT / "bindings/python"}
    found = [sorted(ROOT.glob(f"{of}/Cargo.toml")) for of in ("crates/*/*", "bindings/*")]
    all_folders = [manifest.parent for manifests in found for manifest in manifests]
    return [folder for folder in all_folders if folder not in excluded]


def modules(crate):
    """The file and the code of each module of a crate, by its path: `("net", "client")`."""
    roots = (crate / "src/lib.rs", crate / "src/main.rs")
    found = {}
    read(found, (), next(path for path in roots if path.exists()))
    return found


def read(found, at, file):
    """Reads a module and its descendants."""
    code = NO_CODE.sub(blank, file.read_text())
    tests = TEST.search(code)
    hidden = set()  # modules in files of their own that only tests have
    while tests:
        if tests[2] == ";":
            hidden.add(tests[1])
            end = tests.end()
        else:
            end = closing(code, tests.end())
        code = code[: tests.start()] + blank(code[tests.start() : end]) + code[end:]
        tests = TEST.search(code)
    found[at] = (file, code)
    folder = file.parent if file.stem in ("lib", "main", "mod") else file.parent / file.stem
    for child in set(CHILD.findall(code)) - hidden:
        for candidate in (folder / f"{child}.rs", folder / child / "mod.rs"):
            if candidate.exists():
                read(found, (*at, child), candidate)


def blank(text):
    """As many lines, with nothing on them."""
    text = text if isinstance(text, str) else text[0]
    return " " + "\n" * text.count("\n")


def closing(code, start):
    """The end of the block whose brace is before `start`."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(code[start], 0)
        start += 1
    return start
