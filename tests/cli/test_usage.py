"""``llmgw run keys`` and ``llmgw run usage`` without a controller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from llmgw_core.ledger.usage import FILE, UsageKey, UsageStore, UsageSum


def run(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "llmgw_core", "--state", str(state), "run", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_usage_by_what_was_asked(tmp_path: Path) -> None:
    store = UsageStore(tmp_path / FILE)
    store.add([
        (UsageKey("2026-11-29", "team", "a1", "ada", "m", "m"), UsageSum(1, 10, 2)),
        (UsageKey("2026-11-30", "team", "a1", "ada", "m", "alias"), UsageSum(2, 20, 4)),
        (UsageKey("2026-11-30", "", "", "", "n", "n"), UsageSum(1, 5, 1)),
    ])  # fmt: skip
    store.close()
    found = json.loads(run(tmp_path, "usage", "--json").stdout)["usage"]
    first = {k: found[0][k] for k in ("owner", "key", "model", "requests", "prompt_tokens")}
    assert first == {
        "owner": "team", "key": "ada", "model": "m", "requests": 3, "prompt_tokens": 30,
    }  # fmt: skip
    assert (found[1]["owner"], found[1]["completion_tokens"]) == (None, 1)
    by_day = json.loads(
        run(tmp_path, "usage", "--by", "day", "--since", "2026-11-30", "--json").stdout
    )
    assert [(row["day"], row["requests"]) for row in by_day["usage"]] == [("2026-11-30", 3)]
    wrong = run(tmp_path, "usage", "--by", "colour")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "not kept by 'colour'" in wrong.stderr
    assert run(tmp_path, "usage", "--since", "soon").returncode == 2
    assert "OUTPUT" in run(tmp_path, "usage").stdout


def test_keys_without_a_controller(tmp_path: Path) -> None:
    made = run(tmp_path, "keys", "add", "ada", "--model", "m", "--expires", "30d")
    secret = made.stdout.strip()
    assert secret.startswith("sk-llmgw-")
    assert secret not in made.stderr
    listed = run(tmp_path, "keys", "list", "--json").stdout
    (key,) = json.loads(listed)["keys"]
    assert (key["name"], key["state"], key["models"]) == ("ada", "active", ["m"])
    assert secret not in listed
    assert run(tmp_path, "keys", "add", "ada").returncode == 4
    assert run(tmp_path, "keys", "add", "bob", "--owner", "x").returncode == 2
    assert run(tmp_path, "keys", "revoke", "ada").returncode == 0
    assert run(tmp_path, "keys", "revoke", "ada").returncode == 3
