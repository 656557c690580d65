"""Reasons out of logs. The lines are those of real runs; see test_real for the runs themselves."""

from __future__ import annotations

import pytest

from llmgw_core.engines.llamacpp import LlamaCpp

STARTING = """0.00.000.317 I srv          init: initializing ...
0.00.005.937 I srv          init: loading model
"""


@pytest.mark.parametrize(
    ("log", "status", "said"),
    [
        (STARTING + "E srv start: couldn't bind HTTP server socket, hostname: ::1, port: 80\n",
         1, "port 80 was taken by another process"),
        (STARTING + "E gguf_init_from_file: failed to open GGUF file '/a b.gguf' (No such file or "
         "directory)\nE llama_model_load: error loading model: llama_model_loader: failed to load "
         "model from /a b.gguf\n", 1, "there is no model file /a b.gguf"),
        (STARTING + "E gguf_init_from_file: failed to open GGUF file '/a' (Permission denied)\n",
         1, "/a cannot be opened (Permission denied)"),
        (STARTING + "E gguf_init_from_reader: invalid magic characters: '<htm', expected 'GGUF'\n"
         "E llama_model_load: error loading model: llama_model_loader: failed to load model from x",
         1, "not GGUF (it begins with '<htm')"),
        (STARTING + "E llama_model_load: error loading model: tensor 'token_embd.weight' data is "
         "not within the file bounds, model is corrupted or incomplete\n", 1, "incomplete"),
        (STARTING + "E gguf_init_from_reader: failed to read key-value pairs\n", 1,
         "header is broken"),
        (STARTING + "error loading model: error loading model architecture: unknown model "
         "architecture: 'llama9'\n", 1, "architecture llama9"),
        (STARTING + "E ggml_backend_cpu_alloc_buffer: failed to allocate buffer of size "
         "2073602949120\nE llama_init_from_model: failed to initialize the context\n", 1,
         "not enough memory"),
        (STARTING + "terminate called after throwing an instance of 'std::bad_alloc'\n", 1,
         "not enough memory"),
        ("error: invalid argument: --frobnicate\n", 1, "does not know the option --frobnicate"),
        ('error while handling argument "--ctx-size": stoi\n', 1, "the value of --ctx-size (stoi)"),
        (STARTING + "E llama_model_load: error loading model: check_tensor_dims: wrong shape\n", 1,
         "could not be loaded: check_tensor_dims: wrong shape"),
        ("llmgw: error: the option --x cannot be used with the xllamacpp package\n", 64,
         "the option --x cannot be used"),
        (STARTING, 137, "killed (137), most often for want of memory"),
        (STARTING, 132, "newer processor"),
        (STARTING, 127, "not there any more"),
        (STARTING, 139, "SIGSEGV"),
        (STARTING, 3, "exit status 3; its last line was: 0.00.005.937 I srv"),
        (STARTING, None, "nobody saw how"),
        ("", 1, "its log is empty"),
        ("\x1b[31mred\x1b[0m and " + "x" * 500, 1, "its last line was: red and xxx"),
    ],
)  # fmt: skip
def test_a_reason_is_one_sentence_for_a_person(log: str, status: int | None, said: str) -> None:
    reason = LlamaCpp().failure_reason(log, status)
    assert said in reason
    assert "\n" not in reason
    assert "\x1b" not in reason
    assert len(reason) < 400


def test_old_lines_do_not_explain_a_process_that_was_killed() -> None:
    log = "E srv start: couldn't bind HTTP server socket, hostname: h, port: 80\n"
    assert "killed" in LlamaCpp().failure_reason(log, 137)
