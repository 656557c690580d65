"""Coverage-guided fuzzing of the header reader; needs the package ``atheris``.

python -m tests.gguf.fuzz_atheris [FOLDER] [libFuzzer's options, such as -max_total_time=300]

Begins with every malformed case and with ``tests/gguf/seeds``. What it finds interesting is kept in
FOLDER; an input that fails is written to the current directory: make it small, give it a name, and
put it into ``tests/gguf/seeds``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["llmgw_core.gguf"]):
    from tests.gguf.properties import check

from tests.gguf.malformed import CASES

SEEDS = Path(__file__).with_name("seeds")
SEED_MOST = 4096


def one(data: bytes) -> None:
    """One input; its length chooses the size of the pieces."""
    check(data, step=1 + len(data) % 61)


def main() -> None:
    """Fuzz until told to stop."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, _) in CASES.items():
            data = make()
            if len(data) <= SEED_MOST:
                Path(folder, name.replace("/", "_")).write_bytes(data)
        options = [*sys.argv, folder, str(SEEDS)]
        if not any(arg.startswith("-max_len") for arg in options):
            options.append(f"-max_len={SEED_MOST}")
        atheris.Setup(options, one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
