"""`cedra golden` on the nano model: expected values are computed by tools/reference first.

    golden.py BINARY MODEL SCRATCH

SCRATCH becomes a copy of MODEL with expected values. Compares the oracle and the best level here.
"""

import argparse
import os
import shutil
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools",
                                "reference"))
from checkpoint import write_json  # noqa: E402  (tools/reference)
from config import load_config  # noqa: E402
from make import make_expected  # noqa: E402
from tokenizer_map import load_token_map  # noqa: E402


def make_golden(model, folder):
    """A copy of the checkpoint with the files that `cedra golden` compares with."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    token_map, size = load_token_map(folder, load_config(folder).text.vocab_size)
    write_json(os.path.join(folder, "engram_token_map.json"), {"token_map": token_map, "size": size})
    make_expected(folder, 1, {}, with_noise=True)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("scratch")
    arguments = parser.parse_args()
    make_golden(arguments.model, arguments.scratch)
    commands = ([arguments.binary, "golden", arguments.scratch, *level]
                for level in ([], ["--isa", "oracle"]))
    return max(subprocess.run(command, check=False).returncode for command in commands)


if __name__ == "__main__":
    np.seterr(over="ignore", under="ignore")
    sys.exit(main())
