#!/usr/bin/env python3
"""Holds src/ to its structure (ARCHITECTURE.md): fails, naming file and line, on

  - an #include against the layer order, or of a folder that a layer is not meant to know;
  - a third-party JSON, Boost, curl or CLI type in a header where it may not appear;
  - a source file over 600 lines that is not in the list below;
  - getenv outside src/cli;
  - a byte that is not ASCII.

*_test.cpp files, and headers that only tests include (test_*.h), may include anything.

    scripts/check_layers.py [--root DIR]     exit status 1 if anything is wrong
    scripts/check_layers.py --self-test      does every rule fire?
"""

import argparse
import pathlib
import re
import sys
import tempfile

# Top to bottom. A folder may include itself and the folders below it.
ORDER = ["cli", "server", "engine", "golden", "bench", "synth", "decode", "text", "image", "model",
         "cache", "dist", "plan", "kernels", "checkpoint", "numerics", "parallel", "base"]

# Folders that may see less than everything below them.
ONLY = {
    "synth": {"text", "checkpoint", "numerics", "parallel", "base"},
    "decode": {"text", "base"},
    "text": {"base"},
    "image": {"base"},
    "plan": {"checkpoint", "base"},
    "kernels": {"numerics", "base"},
    "checkpoint": {"numerics", "base"},
    "numerics": set(),
    "parallel": {"base"},
}

# Above the engine its inner headers are not visible.
ENGINE_DOORS = {"engine/engine.h", "engine/load.h", "engine/script_file.h", "engine/scripted_engine.h"}

# Compiled for one instruction set: an inline function of base/ or of a library, instantiated there,
# could be the copy that the linker keeps for the whole program.
KERNEL_LEVELS = ("kernels/amx/", "kernels/avx2/", "kernels/avx512/", "kernels/fast/",
                 "kernels/scalar/")

# Third-party headers, and the folders whose headers may name them.
THIRD_PARTY = {
    re.compile(r"^(nlohmann|simdjson)"): {"server"},
    re.compile(r"^boost/"): {"server"},
    re.compile(r"^curl/"): set(),
    re.compile(r"^CLI/"): {"cli"},
}

MAX_LINES = 600
LONGER = {
    "text/unicode_tables.cpp": "generated tables",
    "checkpoint/config.cpp": "one reader for every key of config.json, in the order of the spec",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def is_test(path):
    return path.endswith("_test.cpp") or path.rsplit("/", 1)[-1].startswith("test_")


def include_problem(path, kind, target):
    """What is wrong with `#include target` in the file src/<path>, or None."""
    folder = path.split("/")[0]
    if kind == "<":
        if not path.endswith(".h"):
            return None
        for pattern, allowed in THIRD_PARTY.items():
            if pattern.search(target) and folder not in allowed:
                return f"third-party <{target}> in a header of {folder}/"
        return None
    if "/" not in target:
        return f'"{target}": includes name the path from src/'
    wanted = target.split("/")[0]
    if wanted not in ORDER:
        return f'"{target}": {wanted}/ is no layer'
    if path.startswith(KERNEL_LEVELS) and wanted not in ("kernels", "numerics"):
        return f'"{target}": a kernel level may include kernels/ and numerics/ only'
    if folder == wanted:
        return None
    if ORDER.index(wanted) < ORDER.index(folder):
        return f'"{target}": {folder}/ lies below {wanted}/'
    if folder in ONLY and wanted not in ONLY[folder]:
        below = ", ".join(sorted(ONLY[folder])) or "nothing else"
        return f'"{target}": {folder}/ may include {below}'
    if folder in ("cli", "server") and wanted == "engine" and target not in ENGINE_DOORS:
        return f'"{target}": {folder}/ sees the engine through {", ".join(sorted(ENGINE_DOORS))}'
    return None


def check_file(src, path):
    """Problems of one file as "line: text"."""
    raw = (src / path).read_bytes()
    problems = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.isascii():
            problems.append(f"{number}: not ASCII (use \\u escapes)")
    text = raw.decode("utf-8", "replace")
    lines = text.split("\n")
    if len(lines) - 1 > MAX_LINES and path not in LONGER:
        problems.append(f"1: {len(lines) - 1} lines, at most {MAX_LINES} (split it by its parts)")
    if is_test(path):
        return problems
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        problem = found and include_problem(path, found[1], found[2])
        if problem:
            problems.append(f"{number}: {problem}")
        if "getenv" in line.split("//")[0] and not path.startswith("cli/"):
            problems.append(f"{number}: getenv; options come in as parameters")
    return problems


def check(root):
    """All problems under root/src as "src/file:line: text"."""
    src = root / "src"
    paths = sorted(p.relative_to(src).as_posix() for p in src.rglob("*")
                   if p.suffix in (".h", ".cpp"))
    problems = [f"src/{path}:{problem}" for path in paths for problem in check_file(src, path)]
    for path in sorted(LONGER):
        if path not in paths:
            problems.append(f"scripts/check_layers.py: LONGER names {path}, which is not there")
    for folder in sorted({path.split("/")[0] for path in paths}):
        if folder not in ORDER:
            problems.append(f"src/{folder}/: no layer of that name")
    return problems, len(paths)


def self_test():
    """Every rule on a file that breaks it, and on one that does not."""
    bad = {
        "base/a.h": '#include "numerics/formats.h"\n',
        "text/b.cpp": '#include "model/model.h"\n',
        "model/c.cpp": '#include "text/tokenizer.h"\n',
        "server/d.cpp": '#include "engine/scheduler.h"\n',
        "kernels/avx2/e.cpp": '#include "base/result.h"\n',
        "plan/f.cpp": '#include "kernels/ops.h"\n',
        "engine/g.h": "#include <nlohmann/json.hpp>\n",
        "model/h.cpp": 'auto* v = std::getenv("X");\n',
        "model/i.cpp": "// caf\u00e9\n",
        "model/j.cpp": "//\n" * (MAX_LINES + 1),
        "model/k.cpp": '#include "model.h"\n',
        "other/l.cpp": "\n",
    }
    good = {
        "engine/a.cpp": '#include "model/forward.h"\n#include <nlohmann/json.hpp>\n',
        "server/b.h": '#include <boost/asio.hpp>\n#include "engine/engine.h"\n',
        "base/c_test.cpp": '#include "engine/scheduler.h"\n',
        "cli/d.cpp": 'auto* v = std::getenv("NO_COLOR");\n',
        "model/e.cpp": "//\n" * MAX_LINES,
    }
    wrong = 0
    for files, broken in ((bad, True), (good, False)):
        for path, text in files.items():
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "src" / path
                file.parent.mkdir(parents=True)
                file.write_text(text, encoding="utf-8")
                problems = [p for p in check(pathlib.Path(folder))[0] if p.startswith("src/")]
                if bool(problems) != broken:
                    print(f"self-test: {path}: want {'a problem' if broken else 'none'}, "
                          f"found {problems}")
                    wrong += 1
    print(f"check_layers self-test: {len(bad) + len(good) - wrong} passed, {wrong} failed")
    return wrong


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 1 if self_test() else 0
    problems, files = check(arguments.root)
    print("\n".join(problems + [f"check_layers: {files} files, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
