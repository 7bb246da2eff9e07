"""The stand-in for stablehlo-translate --interpret: values, collectives, checks and faults."""

from pathlib import Path

import numpy as np
import pytest
from device_grid import Grid, StuckError
from stablehlo_checks import generic_form
from stablehlo_collectives import InterpretError
from stablehlo_interpret import interpret, main

ADD = """({ ^bb0(%x: tensor<i32>, %y: tensor<i32>):
  %s = stablehlo.add %x, %y : tensor<i32>
  stablehlo.return %s : tensor<i32> })"""
FLAT = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def run(body: str, result: str, functions: str = "") -> np.ndarray:
    """What ``main`` with this body returns."""
    text = f"{functions}\nfunc.func @main() -> {result} {{\n{body}\n}}"
    (value,) = interpret(text)
    return np.array(value)


def on_grid(op: str, rows: list[list[int]], out: str = "tensor<2xi32>") -> np.ndarray:
    """Each process's result of ``op`` on ``%a``, where process n holds [2n, 2n+1]."""
    count = sum(map(len, rows))
    constants = "\n".join(
        f"%c{n} = stablehlo.constant dense<[{2 * n}, {2 * n + 1}]> : tensor<2xi32>"
        for n in range(count)
    )
    programs = ", ".join(f"[{', '.join(['@f'] * len(row))}]" for row in rows)
    size = int(out.removeprefix("tensor<").split("x")[0])
    taken = ", ".join(["tensor<2xi32>"] * count)
    body = f"""{constants}
      %r:{count} = "interpreter.run_parallel"({", ".join(f"%c{n}" for n in range(count))})
        {{programs = [{programs}]}} : ({taken}) -> ({", ".join([out] * count)})
      %all = "stablehlo.concatenate"({", ".join(f"%r#{n}" for n in range(count))})
        {{dimension = 0 : i64}} : ({", ".join([out] * count)}) -> tensor<{size * count}xi32>
      return %all : tensor<{size * count}xi32>"""
    function = f"func.func @f(%a: tensor<2xi32>) -> {out} {{\n{op}\nreturn %0 : {out}\n}}"
    return run(body, f"tensor<{size * count}xi32>", function).reshape(count, size)


def groups(rows: list[list[int]], name: str = "replica_groups") -> str:
    return f"{name} = dense<{rows}> : tensor<{len(rows)}x{len(rows[0])}xi64>"


REPLICAS = [[0], [0], [0], [0]]
PARTITIONS = [[0, 0, 0, 0]]
GRID = [[0, 0], [0, 0]]


def test_all_gather_over_more_processes_than_cores():
    many = [[0]] * 16
    op = f"""%0 = "stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64,
      {groups([list(range(16))])}}} : (tensor<2xi32>) -> tensor<32xi32>"""
    got = on_grid(op, many, "tensor<32xi32>")
    assert (got == np.arange(32)).all()


@pytest.mark.parametrize(
    ("rows", "given", "expected"),
    [
        # Groups of replicas, each partition by itself: processes 0, 2 and 1, 3.
        (GRID, groups([[0, 1]]), [[4, 6], [8, 10], [4, 6], [8, 10]]),
        # With all their partitions.
        (GRID, f"{groups([[0], [1]])}, {FLAT}", [[2, 4], [2, 4], [10, 12], [10, 12]]),
        # Ids that count all processes.
        (
            GRID,
            f"{groups([[0, 3], [1, 2]])}, {FLAT}, use_global_device_ids",
            [[6, 8], [6, 8], [6, 8], [6, 8]],
        ),
        # No groups: one of all.
        (
            REPLICAS,
            "replica_groups = dense<> : tensor<0x0xi64>",
            [[12, 16]] * 4,
        ),
    ],
)
def test_all_reduce_reads_groups_in_every_way(
    rows: list[list[int]], given: str, expected: list[list[int]]
):
    op = f'%0 = "stablehlo.all_reduce"(%a) {ADD} {{{given}}} : (tensor<2xi32>) -> tensor<2xi32>'
    assert on_grid(op, rows).tolist() == expected


def test_reduce_scatter_gives_each_its_own_piece():
    op = f"""%0 = "stablehlo.reduce_scatter"(%a) {ADD} {{scatter_dimension = 0 : i64,
      {groups([[1, 0], [2, 3]])}}} : (tensor<2xi32>) -> tensor<1xi32>"""
    assert on_grid(op, REPLICAS, "tensor<1xi32>").tolist() == [[4], [2], [10], [12]]


@pytest.mark.parametrize(
    ("rows", "channel"), [(REPLICAS, ""), (PARTITIONS, f", {FLAT}")], ids=["replica", "partition"]
)
def test_all_to_all_exchanges_pieces(rows: list[list[int]], channel: str):
    op = f"""%0 = "stablehlo.all_to_all"(%a) {{split_dimension = 0 : i64,
      concat_dimension = 0 : i64, split_count = 2 : i64, {groups([[0, 1], [2, 3]])}{channel}}} :
      (tensor<2xi32>) -> tensor<2xi32>"""
    assert on_grid(op, rows).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_collective_permute_gives_zeros_where_none_sends():
    op = f"""%0 = "stablehlo.collective_permute"(%a) {{
      {groups([[0, 1], [1, 2], [3, 3]], "source_target_pairs")}}} :
      (tensor<2xi32>) -> tensor<2xi32>"""
    assert on_grid(op, REPLICAS).tolist() == [[0, 0], [0, 1], [2, 3], [6, 7]]


def test_collective_broadcast_takes_the_first_of_the_group():
    op = f"""%0 = "stablehlo.collective_broadcast"(%a) {{{groups([[2, 1]])}}} :
      (tensor<2xi32>) -> tensor<2xi32>"""
    assert on_grid(op, REPLICAS).tolist() == [[0, 0], [4, 5], [4, 5], [0, 0]]


def test_each_process_knows_its_numbers():
    op = """%r = stablehlo.replica_id : tensor<ui32>
      %p = stablehlo.partition_id : tensor<ui32>
      %r1 = stablehlo.reshape %r : (tensor<ui32>) -> tensor<1xui32>
      %p1 = stablehlo.reshape %p : (tensor<ui32>) -> tensor<1xui32>
      %rp = stablehlo.concatenate %r1, %p1, dim = 0 : (tensor<1xui32>, tensor<1xui32>) ->
        tensor<2xui32>
      %0 = stablehlo.convert %rp : (tensor<2xui32>) -> tensor<2xi32>"""
    assert on_grid(op, GRID).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_collectives_in_loops_branches_and_calls():
    """Three rounds of all-reduce over four replicas, in a called function, under an if."""
    functions = f"""
      func.func @sum(%a: tensor<i32>) -> tensor<i32> {{
        %0 = "stablehlo.all_reduce"(%a) {ADD} {{{groups([[0, 1, 2, 3]])}}} :
          (tensor<i32>) -> tensor<i32>
        return %0 : tensor<i32>
      }}
      func.func @f(%a: tensor<i32>) -> tensor<i32> {{
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %three = stablehlo.constant dense<3> : tensor<i32>
        %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<i32>
          cond {{
            %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %go : tensor<i1>
          }} do {{
            %first = stablehlo.compare EQ, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
            %y = "stablehlo.if"(%first) ({{
              %s = func.call @sum(%x) : (tensor<i32>) -> tensor<i32>
              stablehlo.return %s : tensor<i32>
            }}, {{
              %index = stablehlo.constant dense<7> : tensor<i32>
              %t = "stablehlo.case"(%index) ({{
                stablehlo.return %zero : tensor<i32>
              }}, {{
                %s = func.call @sum(%x) : (tensor<i32>) -> tensor<i32>
                stablehlo.return %s : tensor<i32>
              }}) : (tensor<i32>) -> tensor<i32>
              stablehlo.return %t : tensor<i32>
            }}) : (tensor<i1>) -> tensor<i32>
            %next = stablehlo.add %i, %one : tensor<i32>
            stablehlo.return %next, %y : tensor<i32>, tensor<i32>
          }}
        return %r#1 : tensor<i32>
      }}"""
    kind = "tensor<i32>"
    body = f"""%c = stablehlo.constant dense<5> : {kind}
      %r:4 = "interpreter.run_parallel"(%c, %c, %c, %c) {{programs = [[@f], [@f], [@f], [@f]]}} :
        ({kind}, {kind}, {kind}, {kind}) -> ({kind}, {kind}, {kind}, {kind})
      return %r#3 : {kind}"""
    assert run(body, kind, functions) == 5 * 4**3


def test_ops_with_regions_and_calls_that_hold_no_collective_run_whole():
    functions = """func.func @twice(%a: tensor<i32>) -> tensor<i32> {
      %0 = stablehlo.add %a, %a : tensor<i32>
      return %0 : tensor<i32>
    }"""
    body = """%zero = stablehlo.constant dense<0> : tensor<i32>
      %five = stablehlo.constant dense<5> : tensor<i32>
      %r = stablehlo.while(%x = %zero) : tensor<i32>
        cond {
          %go = stablehlo.compare LT, %x, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %y = stablehlo.add %x, %five : tensor<i32>
          %z = func.call @twice(%y) : (tensor<i32>) -> tensor<i32>
          stablehlo.return %z : tensor<i32>
        }
      return %r : tensor<i32>"""
    assert run(body, "tensor<i32>", functions) == 10


def check(op: str, left: str, right: str, kind: str = "tensor<2xf32>") -> None:
    interpret(
        f"""func.func @main() {{
          %l = stablehlo.constant dense<{left}> : {kind}
          %r = stablehlo.constant dense<{right}> : {kind}
          {op}
          return
        }}"""
    )


EQ = "check.expect_eq %l, %r : tensor<2xf32>"
ALMOST = "check.expect_almost_eq %l, %r : tensor<2xf32>"
NEAR = "check.expect_almost_eq %l, %r, tolerance = 0.5 : tensor<2xf32>"
CLOSE = """"check.expect_close"(%l, %r) {max_ulp_difference = 2 : i64} :
  (tensor<2xf32>, tensor<2xf32>) -> ()"""
ONE_STEP = 1 + 2.0**-23


@pytest.mark.parametrize(
    ("op", "left", "right", "holds"),
    [
        (EQ, "[1.0, 2.0]", "[1.0, 2.0]", True),
        (EQ, "[0x7FC00000, 1.0]", "[0x7FC00000, 1.0]", True),
        (EQ, "[1.0, 2.0]", f"[{ONE_STEP}, 2.0]", False),
        (EQ, "[0.0, 2.0]", "[-0.0, 2.0]", False),
        (ALMOST, "[1.0, 2.0]", "[1.00009, 2.0]", True),
        (ALMOST, "[1.0, 2.0]", "[1.0002, 2.0]", False),
        (ALMOST, "[0x7F800000, 0x7FC00000]", "[0x7F800000, 0x7FC00001]", True),
        (ALMOST, "[0x7F800000, 1.0]", "[0xFF800000, 1.0]", False),
        (ALMOST, "[0x7FC00000, 1.0]", "[1.0, 1.0]", False),
        (NEAR, "[1.0, 2.0]", "[1.4, 2.0]", True),
        (NEAR, "[1.0, 2.0]", "[1.6, 2.0]", False),
        (CLOSE, "[1.0, 2.0]", f"[{ONE_STEP}, 2.0]", True),
        (CLOSE, "[1.0, 2.0]", f"[{1 + 3 * 2.0**-23}, 2.0]", False),
        (CLOSE, "[0.0, 1.0e-45]", "[-0.0, -0.0]", True),
        (CLOSE, "[0x7F800000, 1.0]", "[0x7F7FFFFF, 1.0]", False),
        ("check.expect_eq_const %l, dense<[1.0, 2.0]> : tensor<2xf32>", "[1.0, 2.0]", "0.0", True),
        ("check.expect_eq_const %l, dense<[1.0, 2.5]> : tensor<2xf32>", "[1.0, 2.0]", "0.0", False),
        ("check.expect_almost_eq_const %l, dense<1.0> : tensor<2xf32>", "1.00001", "0.0", True),
        ("check.expect_almost_eq_const %l, dense<1.0> : tensor<2xf32>", "1.001", "0.0", False),
    ],
)
def test_checks_hold_or_fail(op: str, left: str, right: str, holds: bool):
    if holds:
        check(op, left, right)
        return
    with pytest.raises(InterpretError, match=r"^-:4:\d+: check\.expect_\w+: .*\(actual\)"):
        check(op, left, right)


@pytest.mark.parametrize("element", ["bf16", "f16", "f64"])
def test_steps_are_those_of_the_element_type(element: str):
    kind = f"tensor<2x{element}>"
    digits = {"bf16": 7, "f16": 10, "f64": 52}[element]
    op = f'"check.expect_close"(%l, %r) {{max_ulp_difference = 1 : i64}} : ({kind}, {kind}) -> ()'
    check(op, "[1.0, 2.0]", f"[{1 + 2.0**-digits}, 2.0]", kind)
    with pytest.raises(InterpretError):
        check(op, "[1.0, 2.0]", f"[{1 + 2 * 2.0**-digits}, 2.0]", kind)


def test_the_dialects_own_form_spans_lines_and_keeps_the_rest():
    text = "a\ncheck.expect_eq_const %0#1, dense<[[1, 2],\n  [3, 4]]> : tensor<2x2xi32>\nb"
    assert generic_form(text) == (
        'a\n"check.expect_eq_const"(%0#1) {value = dense<[[1, 2],\n  [3, 4]]> : tensor<2x2xi32>} '
        ": (tensor<2x2xi32>) -> ()\nb"
    )
    for other in ('"check.expect_eq"(%0, %1) : (A, B) -> ()', "check.expect_eq %0, what"):
        assert generic_form(other) == other


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("%p = stablehlo.partition_id : tensor<ui32>", "outside of what interpreter.run_parallel"),
        ('"check.expect_same"() : () -> ()', "there is no such check"),
        (
            '%t = stablehlo.create_token : !stablehlo.token\n%o = "stablehlo.outfeed"(%t) : '
            "(!stablehlo.token) -> !stablehlo.token",
            "is refused",
        ),
    ],
)
def test_what_cannot_be_run_is_said_with_its_place(op: str, message: str):
    with pytest.raises(InterpretError, match=message):
        interpret(f"func.func @main() {{\n{op}\nreturn\n}}")


def test_processes_that_wait_for_ever_are_told_of():
    grid = Grid(1, 3)

    def program(process: tuple[int, int]) -> None:
        if process[1]:
            grid.exchange("a sum", [(0, 0), process], process, None)

    with pytest.raises(StuckError, match="every process that is left waits: a sum, a sum"):
        grid.run(program)


def test_what_one_process_raises_ends_the_others():
    grid = Grid(1, 3)

    def program(process: tuple[int, int]) -> None:
        if process == (0, 2):
            raise ValueError("no")
        grid.exchange("a sum", grid.processes, process, None)

    with pytest.raises(ValueError, match="no"):
        grid.run(program)


def test_the_program_prints_results_and_says_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "a.mlir"
    file.write_text(
        """func.func @main() -> tensor<2xi32> {
          %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
          check.expect_eq_const %0, dense<[1, 2]> : tensor<2xi32>
          return %0 : tensor<2xi32>
        }"""
    )
    assert main(["--interpret", str(file)]) == 0
    assert capsys.readouterr().out == "dense<[1, 2]> : tensor<2xi32>\n"
    file.write_text(file.read_text().replace("const %0, dense<[1, 2]>", "const %0, dense<[1, 3]>"))
    assert main([str(file)]) == 1
    assert capsys.readouterr().err == (
        f"stablehlo_interpret: error: {file}:3:11: check.expect_eq_const: dense<[1, 2]> : "
        "tensor<2xi32> (actual) is not dense<[1, 3]> : tensor<2xi32> (expected)\n"
    )
    file.write_text("func.func @other() { return }")
    assert main([str(file)]) == 1
    assert "no function main that takes nothing" in capsys.readouterr().err
    file.write_text("func.func @main() { retur }")
    assert main([str(file)]) == 1
    assert f"{file}:1:21" in capsys.readouterr().err
    assert main([str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
