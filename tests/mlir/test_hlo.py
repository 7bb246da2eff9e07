"""HLO as text and as protos: shardings, names, donation and device counts arrive."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir

from shardpass.compat import hlo_import
from shardpass.diagnostics import ShardingError, SourceLocation
from shardpass.mlir import (
    MHLO_SHARDING,
    Module,
    argument_attributes,
    load,
    operations,
    result_attributes,
)
from shardpass.mlir.hlo_proto import facts_of, is_hlo_proto, module_of

ANNOTATED = """\
HloModule step, input_output_alias={ {1}: (0, {}, must-alias) }, buffer_donor={ (1, {1}) }, \
entry_computation_layout={(f32[8,4]{1,0}, (f32[4]{0}, f32[2]{0}))->\
(f32[8,4]{1,0}, f32[8,4]{1,0})}, replica_count=1, num_partitions=8

ENTRY main {
  w = f32[8,4]{1,0} parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}, \
metadata={op_name="params['w']"}
  q = (f32[4]{0}, f32[2]{0}) parameter(1), \
sharding={{devices=[4,2]<=[8] last_tile_dim_replicate}, {replicated}}
  g = f32[4]{0} get-tuple-element(q), index=0
  b = f32[8,4]{1,0} broadcast(g), dimensions={1}
  c = f32[8,4]{1,0} copy(b)
  a = f32[8,4]{1,0} add(w, c), sharding={devices=[2,4]7,6,5,4,3,2,1,0}
  ROOT t = (f32[8,4]{1,0}, f32[8,4]{1,0}) tuple(a, w), \
sharding={{devices=[2,4]7,6,5,4,3,2,1,0}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}
}
"""
ROWS = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
LISTED = "{devices=[2,4]7,6,5,4,3,2,1,0}"


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes) -> bytes:
    """One field of a protobuf message: a number, or bytes with their length in front."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def refused(source: Any) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        load(source, name="step.hlo")
    assert caught.value.slug == "unreadable"
    return caught.value


def said(entries: Any, name: str = MHLO_SHARDING) -> list[str | None]:
    return [str(e[name]).strip('"') if name in e else None for e in entries]


def counts(module: Module) -> tuple[str, str]:
    attributes = module.root.attributes
    return tuple(
        str(attributes[f"mhlo.num_{what}"]) if f"mhlo.num_{what}" in attributes else "-"
        for what in ("partitions", "replicas")
    )  # pyright: ignore[reportReturnType]


def test_what_arrives() -> None:
    module = load(ANNOTATED)
    assert module.form == "hlo"
    arguments = argument_attributes(module.main)
    quarters = "{devices=[4,2]<=[8] last_tile_dim_replicate}"
    assert said(arguments) == [ROWS, quarters, "{replicated}"]
    assert said(result_attributes(module.main)) == [LISTED, ROWS]
    assert said(arguments, "tf.aliasing_output") == ["1 : i32", None, None]
    assert said(arguments, "jax.buffer_donor") == [None, None, "true"]
    assert module.arguments[0].path == "params.w"
    assert counts(module) == ("8 : i32", "1 : i32")
    text = module.text(debug_info=False)
    assert f'stablehlo.add %arg0, %0 {{mhlo.sharding = "{LISTED}"}}' in text
    assert "mhlo.copy" not in text
    assert set(module.root.attributes) == {"mhlo.num_partitions", "mhlo.num_replicas", "sym_name"}


def test_a_copy_with_a_sharding_stays() -> None:
    """It binds in GSPMD's notation."""
    text = ANNOTATED.replace("copy(b)", f"copy(b), sharding={ROWS}")
    assert f'mhlo.copy %0 {{mhlo.sharding = "{ROWS}"}}' in load(text).text(debug_info=False)


def test_named_shardings() -> None:
    """XLA's V3, on every version that parses it."""
    named = "{mesh['x'=2,'y'=4], [{'x'}, {}]}"
    text = ANNOTATED.replace(f"sharding={ROWS}", f"sharding={named}", 1)
    assert said(argument_attributes(load(text).main))[0] == named


def test_a_proto_says_less_than_text() -> None:
    """The count of devices is in its shardings, unless XLA had chosen the devices."""
    proto = hlo_import.proto_of_text(ANNOTATED)
    module = load(proto)
    assert module.form == "hlo-proto"
    assert module.text(debug_info=False) == load(ANNOTATED).text(debug_info=False).replace(
        ", mhlo.num_replicas = 1 : i32", ""
    )
    devices = field(1, 1) + field(2, 2) + field(3, field(1, b"\0")) + field(3, field(1, b"\1"))
    plain = hlo_import.proto_of_text("HloModule p\nENTRY e { ROOT a = f32[4] parameter(0) }")
    assert counts(load(plain + field(15, devices))) == ("2 : i32", "1 : i32")
    assert counts(load(plain)) == ("-", "-")


def test_text_and_proto_call_arguments_alike() -> None:
    """As JAX does where the metadata says; XLA's own numbers behind names go in any case."""
    lowered = jax.jit(lambda weights, x: x @ weights["w"]).lower(
        {"w": jax.ShapeDtypeStruct((8, 4), "float32")}, jax.ShapeDtypeStruct((2, 8), "float32")
    )
    hlo = lowered.compiler_ir("hlo")
    with_metadata = hlo_import.text_of_proto(hlo.as_serialized_hlo_module_proto())
    for source in (hlo.as_serialized_hlo_module_proto(), with_metadata):
        assert [a.raw for a in load(source).arguments] == ["weights['w']", "x"]
    plain = lowered.as_text("hlo")
    assert "x.1 = " in plain
    assert "op_name" not in plain
    assert [a.raw for a in load(plain).arguments] == ["weights__w__", "x"]


def test_numbers_that_tell_arguments_apart_stay() -> None:
    module = load("""HloModule m
ENTRY e {
  p.1 = f32[2] parameter(0)
  p.2 = f32[2] parameter(1)
  q.7 = (f32[2], f32[2]) parameter(2)
  r.0.5 = f32[2] parameter(3)
  s.6 = f32[2] parameter(4), metadata={op_name="s.6"}
  ROOT sum = f32[2] add(p.1, p.2)
}
""")
    assert [a.raw for a in module.arguments] == ["p.1", "p.2", "q", "q", "r.0", "s.6"]


def test_protos_around_protos() -> None:
    """``HloProto``, with a buffer assignment behind it; ``HloSnapshot``, with arguments."""
    proto = hlo_import.proto_of_text(ANNOTATED)
    hlo = field(1, proto) + field(3, field(1, b""))
    for data in (hlo, field(1, hlo) + field(2, b"\x10\x0b") + field(4, b"cpu")):
        assert module_of(data) == proto
        assert load(data).form == "hlo-proto"
    assert not is_hlo_proto(field(1, field(1, hlo)))


def test_what_is_no_hlo_proto() -> None:
    proto = hlo_import.proto_of_text(ANNOTATED)
    for data in (
        b"",
        b"\n\x05abc",
        proto[:-4],
        proto + b"\xff",
        field(1, b"name") + field(2, b"main"),  # no computations
        field(1, b"step") + field(2, b"other") + field(3, field(1, b"main")) + field(4, b""),
        field(1, b"\x01\x02\x03"),
    ):
        assert not is_hlo_proto(data)


def test_facts() -> None:
    facts = facts_of(hlo_import.proto_of_text(ANNOTATED))
    assert (facts.aliases, facts.donors) == ({1: 0}, (2,))
    assert (facts.partitions, facts.replicas, facts.misfit) == (None, None, None)
    assert not facts.is_partitioned


def test_faults_in_text_have_a_line() -> None:
    error = refused(ANNOTATED.replace("broadcast(g)", "broadcst(g)"))
    assert error.diagnostic.location == SourceLocation("step.hlo", 7, 21)
    assert "expects opcode but sees: broadcst" in str(error)


@pytest.mark.parametrize(
    "text", ["HloModule", "HloModule step", "HloModule step\n", "HloModule step\nENTRY e {"]
)
def test_text_that_is_cut_short(text: str) -> None:
    assert "HLO" in str(refused(text.encode()))


def test_text_without_its_entry() -> None:
    """XLA takes the last computation for the entry, and its importer would die."""
    head = "HloModule t, entry_computation_layout={(f32[4]{0}, f32[2]{0})->f32[4]{0}}\n"
    text = head + "\nhelper {\n  ROOT h = f32[] parameter(0)\n}\n"
    assert "entry computation helper has 1 arguments, not 2" in str(refused(text))
    assert "entry computation e has 1 results, not 2" in str(
        refused(
            "HloModule t, entry_computation_layout={(f32[4]{0})->(f32[4]{0}, f32[4]{0})}\n"
            "ENTRY e { ROOT p = f32[4]{0} parameter(0) }"
        )
    )


def test_what_xla_has_partitioned_already() -> None:
    """The program of one device has no whole arrays to shard."""
    text = ANNOTATED.replace("HloModule step,", "HloModule step, is_scheduled=true,")
    for source in (text, hlo_import.proto_of_text(ANNOTATED) + field(12, b"")):
        assert "XLA has partitioned" in str(refused(source))
    assert "for 8 devices already" in str(refused(text))
    whole = text.replace("num_partitions=8", "num_partitions=1")
    assert counts(load(whole)) == ("1 : i32", "1 : i32")


def test_there_and_back() -> None:
    """Shardings, names, donation and counts survive."""
    module = load(ANNOTATED)
    for emit in ("hlo", "hlo-proto"):
        again = load(module.to_bytes(emit))
        assert again.form == emit
        assert again.arguments[0].path == "params.w"
        for read in (argument_attributes, result_attributes):
            for name in (MHLO_SHARDING, "tf.aliasing_output", "jax.buffer_donor"):
                assert said(read(again.main), name) == said(read(module.main), name)
        assert counts(again)[0] == "8 : i32"


def test_large_constants_are_written_whole() -> None:
    table = np.arange(2000, dtype=np.float32)
    module = load(jax.jit(lambda x: x + jnp.asarray(table)).lower(table))
    again = load(module.to_bytes("hlo")).text(debug_info=False)
    constant = next(line for line in module.text(debug_info=False).splitlines() if "dense<" in line)
    assert constant.split("dense<")[1] in again


def test_shardy_is_not_hlo() -> None:
    mesh = 'sdy.mesh @mesh = <["x"=2]>\n'
    body = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    sharded = body.replace(
        "xf32>)", 'xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=2]>, [{"x"}]>})'
    )
    for text in (mesh + body, sharded):
        for emit in ("hlo", "hlo-proto"):
            with pytest.raises(ShardingError) as caught:
                load(text).to_bytes(emit)
            assert caught.value.slug == "not-expressible"
            assert "run sp-export-mhlo over it first" in str(caught.value)
    assert load(body).to_bytes("hlo").startswith(b"HloModule")


LOOP = """\
HloModule loop, num_partitions=4

cond {
  s = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[8,4]) parameter(0), sharding={{replicated}, {devices=[4,1]<=[4]}}
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,4] multiply(x, x)
  ROOT t = (s32[], f32[8,4]) tuple(j, y)
}
ENTRY e {
  p = f32[8,4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8,4]) tuple(z, p)
  w = (s32[], f32[8,4]) while(t), condition=cond, body=body
  ROOT g = f32[8,4] get-tuple-element(w), index=1
}
"""


def loop_sharding(text: str) -> str | None:
    (loop,) = [op for op in operations(load(text).root) if op.operation.name == "stablehlo.while"]
    return (
        ir.StringAttr(loop.attributes[MHLO_SHARDING]).value
        if MHLO_SHARDING in loop.attributes
        else None
    )


def test_what_the_parameters_of_a_loop_body_say_is_said_of_the_loop() -> None:
    """XLA's importer keeps it on a function that nobody calls."""
    said = "{{replicated}, {devices=[4,1]<=[4]}}"
    assert loop_sharding(LOOP) == said
    silent = LOOP.replace(f", sharding={said}", "")
    assert loop_sharding(silent) is None
    own = "{{replicated}, {devices=[1,4]<=[4]}}"
    spoken = LOOP.replace("body=body\n", f"body=body, sharding={own}\n")
    assert loop_sharding(spoken) == own


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert counts(load(b"\xef\xbb\xbf" + LOOP.encode())) == counts(load(LOOP))
