from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gateway import body
from llmgw_core.gateway.errors import ApiError


def joined(ask: body.Ask, name: str) -> bytes:
    return b"".join(body.renamed(ask, name))


def test_reads_what_routing_needs() -> None:
    ask = body.read(
        b'{"messages":[],"model":"org/m:1","stream":true,"stream_options":{"include_usage":true}}'
    )
    assert (ask.model, ask.stream) == ("org/m:1", True)
    options = ask.stream_options()
    assert options is not None
    assert options.include_usage is True


def test_what_the_client_left_out_is_not_invented() -> None:
    ask = body.read(b'{"model":"m"}')
    assert ask.stream is False
    assert ask.stream_options() is None
    assert ask.limits == ()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model":"m",}', "not valid JSON"),
        (b'{"model":"m"} x', "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'["m"]', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        (b"{}", "names no model"),
        (b'{"model":3}', "must be a string"),
        (b'{"model":null}', "must be a string"),
        (b'{"model":"\xff"}', "must be a string"),
    ],
)
def test_a_body_without_a_model_is_refused_in_a_sentence(raw: bytes, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        body.read(raw)
    assert caught.value.status == 400
    assert words in caught.value.message


def test_the_same_name_leaves_every_byte() -> None:
    raw = b' { "seed" : 12345678901234567890123, "model" : "m" , "t": 1.10, "a":[] }\n'
    assert joined(body.read(raw), "m") == raw


def test_another_name_changes_nothing_else() -> None:
    raw = (
        b'{"messages":[{"content":"\\"model\\": \\"alias\\"","model":"alias"}], "model" :\t"alias"'
        b' ,"seed":9007199254740993,"tools":[{"model":"alias"}],"x":1.0e2}'
    )
    expected = raw.replace(b':\t"alias"', b':\t"real/name"')
    assert joined(body.read(raw), "real/name") == expected


def test_escapes_in_key_and_name_are_understood() -> None:
    raw = b'{"mod\\u0065l":"\\u0061lias","n":1}'
    ask = body.read(raw)
    assert ask.model == "alias"
    assert joined(ask, 'q"uote') == b'{"mod\\u0065l":"q\\"uote","n":1}'


def test_of_two_models_the_last_counts_as_engines_read_it() -> None:
    ask = body.read(b'{"model":"a","model":"b"}')
    assert ask.model == "b"
    assert joined(ask, "c") == b'{"model":"a","model":"c"}'


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(
    before=st.dictionaries(st.text(), json_values, max_size=4),
    name=st.text(),
    after=st.dictionaries(st.text(), json_values, max_size=4),
    new=st.text(),
)
def test_renaming_is_exact_for_any_body(
    before: dict[str, object], name: str, after: dict[str, object], new: str
) -> None:
    document = {k: v for k, v in before.items() if k != "model"}
    document["model"] = name
    document.update({k: v for k, v in after.items() if k != "model"})
    raw = json.dumps(document).encode()
    renamed = joined(body.read(raw), new)
    assert json.loads(renamed) == {**document, "model": new}
    assert abs(len(renamed) - len(raw)) <= 12 * (len(new) + len(name)) + 2


def test_a_bound_above_the_model_is_refused_by_name() -> None:
    ask = body.read(b'{"model":"m","max_completion_tokens":500}')
    body.check_limits(ask, "m", None)
    body.check_limits(ask, "m", 500)
    with pytest.raises(ApiError, match=r"max_completion_tokens is 500.*at most 499") as caught:
        body.check_limits(ask, "m", 499)
    assert caught.value.param == "max_completion_tokens"


def test_a_bound_that_is_no_number_is_left_to_the_engine() -> None:
    ask = body.read(b'{"model":"m","max_tokens":null,"max_completion_tokens":"many"}')
    body.check_limits(ask, "m", 1)
