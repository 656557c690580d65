"""What is asked about an architecture, how answers are read, and what they add up to. Pure."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engines.llamacpp import LlamaCpp
from llmgw_core.engines.registry import ENGINES
from llmgw_core.engines.verdict import (
    Verdict,
    combine,
    is_askable,
    label,
    not_asked,
    read_answer,
    tiny_gguf,
)
from llmgw_core.engines.vllm import Vllm
from llmgw_core.nodes.facts import EngineFacts

FOUND = EngineFacts("llamacpp", "xllamacpp", "/p/python", "2026.10.11549")
SERVER = EngineFacts("llamacpp", "llama-server", "/p/llama-server", "6123 (abc)")
VLLM = EngineFacts("vllm", "vllm", "/p/vllm", "0.11.0")

UNKNOWN = (
    "0.00.008.484 E llama_model_load: error loading model: unknown model architecture: 'foo'\n"
)
OLDER = (
    "llama_model_load: error loading model: error loading model architecture: "
    "unknown model architecture: 'foo'\nllama_model_load_from_file_impl: failed to load model\n"
)
MISSING = (
    "E llama_model_load: error loading model: error loading model hyperparameters: "
    "key not found in model: foo.context_length\n"
)
CLIP = "E llama_model_load: error loading model: CLIP cannot be used as main model, use it with --mmproj instead\n"  # noqa: E501
PORT = "E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 37611\n"


@pytest.mark.parametrize("name", ["gemma3", "x" * 64])
def test_the_file_names_the_architecture_and_no_more(name: str) -> None:
    data = tiny_gguf(name)
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", data)
    assert (magic, version, tensors, keys) == (b"GGUF", 3, 0, 1)
    assert b"general.architecture" in data
    assert data.endswith(struct.pack("<Q", len(name)) + name.encode())
    assert len(data) == 64 + len(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a b", "a'b", "a\nb", "a\n", "../x;rm", "é", "a\0", "$(id)"]
)
def test_a_name_that_cannot_be_one_is_not_asked(name: str) -> None:
    assert not is_askable(name)
    assert LlamaCpp().architecture_question(FOUND, name) is None
    with pytest.raises(ValueError, match="cannot be the name"):
        tiny_gguf(name)
    verdict = not_asked(FOUND, name)
    assert verdict.known is None
    assert "no name of an architecture" in verdict.sentence


def test_only_llama_cpp_can_be_asked() -> None:
    question = ENGINES["llamacpp"].architecture_question(FOUND, "gemma3")
    assert question is not None
    assert b"import xllamacpp" in question.program
    question = ENGINES["llamacpp"].architecture_question(SERVER, "gemma3")
    assert question is not None
    assert question.program == b""
    assert Vllm().architecture_question(VLLM, "gemma3") is None
    assert not_asked(VLLM, "gemma3") == Verdict(
        None, "vllm cannot be asked for its architectures", "vLLM 0.11.0"
    )


@pytest.mark.parametrize(
    ("output", "status", "known", "sentence"),
    [
        (UNKNOWN, 1, False, "unknown architecture 'foo'"),
        (OLDER, 1, False, "unknown architecture 'foo'"),
        (UNKNOWN.encode().decode() + PORT, 134, False, "unknown architecture 'foo'"),
        (MISSING, 1, True, "it knows 'foo'"),
        (UNKNOWN.replace("foo", "foo2"), 1, None, "could not be understood"),
        (CLIP, 1, False, "a projector's"),
        (PORT, 1, None, "couldn't bind"),
        ("", 0, None, "(status 0) could not be understood"),
        ("", 69, None, "cannot import xllamacpp"),
        ("", 124, None, "no answer within 20 s"),
        ("", 127, None, "not there any more"),
        ("ggml_abort\n", 134, None, "ended by signal 6 when it was asked; its last line was: ggml"),
    ],
)
def test_an_answer_is_read(output: str, status: int, known: bool | None, sentence: str) -> None:
    verdict = read_answer(FOUND, "foo", status, output)
    assert verdict.known is known
    assert sentence in verdict.sentence
    assert verdict.engine == "llama.cpp 2026.10.11549"


@given(st.text(max_size=300), st.integers(0, 255))
def test_any_output_is_read(output: str, status: int) -> None:
    verdict = read_answer(FOUND, "foo", status, output)
    assert verdict.sentence
    assert "\n" not in verdict.sentence


def test_an_engine_without_version_has_a_name() -> None:
    assert label(EngineFacts("llamacpp", "llama-server", "/p")) == "llama.cpp"


def said(known: bool | None, found: EngineFacts = FOUND) -> Verdict:
    status, output = {True: (1, MISSING), False: (1, UNKNOWN), None: (124, "")}[known]
    return read_answer(found, "foo", status, output)


def test_what_nobody_can_load_is_refused() -> None:
    opinion = combine({"n2": said(False), "n1": said(False)}, "foo")
    assert opinion.refusal == (
        "llama.cpp 2026.10.11549 on n1, n2 cannot load it: unknown architecture 'foo'"
    )
    assert opinion.unable == ("n1", "n2")
    assert opinion.warning == ""


def test_a_refusal_names_each_engine_and_who_was_silent() -> None:
    verdicts = {"n1": said(False), "n2": said(False, SERVER), "n3": said(None)}
    assert combine(verdicts, "foo").refusal == (
        "llama.cpp 2026.10.11549 on n1 cannot load it: unknown architecture 'foo'; "
        "llama.cpp 6123 (abc) on n2 cannot load it: unknown architecture 'foo' "
        "(n3 could not be asked)"
    )


def test_where_some_know_it_the_others_are_warned_of() -> None:
    opinion = combine({"n1": said(False, SERVER), "n2": said(True), "n3": said(None)}, "foo")
    assert opinion.refusal == ""
    assert opinion.warning == (
        "llama.cpp 6123 (abc) on n1 cannot load it: unknown architecture 'foo'; "
        "it can run on n2 only"
    )
    assert opinion.unable == ("n1",)


def test_the_table_speaks_only_where_no_engine_does() -> None:
    for verdicts in ({}, {"n1": said(None)}):
        assert combine(verdicts, "foo") == combine(verdicts, "foo", known_to_table=True)
        opinion = combine(verdicts, "foo", known_to_table=False)
        assert "b11549 does not know the architecture 'foo'" in opinion.warning
        assert opinion.refusal == ""
    opinion = combine({"n1": said(True), "n2": said(None)}, "foo", known_to_table=False)
    assert (opinion.refusal, opinion.warning) == ("", "")


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([True, False, None]), max_size=4
    ),
    st.sampled_from([True, False, None]),
)
def test_a_refusal_needs_a_no_and_no_yes(
    answers: dict[str, bool | None], table: bool | None
) -> None:
    opinion = combine({n: said(known) for n, known in answers.items()}, "foo", known_to_table=table)
    values = answers.values()
    assert bool(opinion.refusal) == (False in values and True not in values)
    assert not (opinion.refusal and opinion.warning)
    assert set(opinion.unable) == {n for n, known in answers.items() if known is False}


EVIL = "\x1b]0;x\x07\u202e\x9b2J"


def test_what_files_and_nodes_call_themselves_is_shown_harmless_and_short() -> None:
    huge = EVIL + "x" * (1 << 20)
    odd = EngineFacts("llamacpp", "llama-server", "/p/llama-server", huge)
    opinion = combine({}, huge, known_to_table=False)
    sentences = [
        opinion.warning,
        not_asked(FOUND, huge).sentence,
        label(odd),
        read_answer(odd, "foo", 1, f"it broke: {huge}\n").sentence,
        read_answer(FOUND, "foo", 1, f"it broke: {EVIL} and more\n").sentence,
    ]
    for said in sentences:
        assert said
        assert said.isprintable(), said
        assert len(said) < 400
    assert sentences[-1].endswith("and more")
