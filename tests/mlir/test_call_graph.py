"""Functions that call themselves are refused, by whatever op and on whatever way round."""

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import CallGraph, load

TYPE = "(tensor<8xf32>) -> tensor<8xf32>"


def function(name: str, *callees: str) -> str:
    calls = "".join(f"  func.call @{callee}(%x) : {TYPE}\n" for callee in callees)
    return (
        f"func.func private @{name}(%x: tensor<8xf32>) -> tensor<8xf32> {{\n"
        f"{calls}  return %x : tensor<8xf32>\n}}\n"
    )


def refusal(text: str) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        CallGraph.of(load(text).root).check()
    assert caught.value.slug == "not-supported"
    return caught.value


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        (function("main", "main"), "@main calls itself", 2),
        (function("main", "b") + function("b", "b"), "@b calls itself", 6),
        (
            function("main", "a") + function("a", "b") + function("b", "c") + function("c", "a"),
            "@a calls @b, which calls @c, which calls @a",
            14,
        ),
        # Nobody comes here from @main, and it is no program all the same.
        (
            function("main") + function("a", "b") + function("b", "a"),
            "@a calls @b, which calls @a",
            9,
        ),
    ],
)
def test_a_circle_of_calls_is_told_in_order_at_the_call_that_closes_it(
    text: str, told: str, line: int
) -> None:
    error = refusal(text)
    assert str(error).startswith(f"{told}: StableHLO has no recursion")
    assert error.diagnostic.location is not None
    assert error.diagnostic.location.line == line


@pytest.mark.parametrize(
    "op",
    [
        f'stablehlo.composite "acme.a" %x {{decomposition = @main}} : {TYPE}',
        f"stablehlo.custom_call @acme(%x) {{called_computations = [@b, @main]}} : {TYPE}",
    ],
)
def test_other_ops_that_name_functions_count_as_calls(op: str) -> None:
    main = function("main").replace("  return", f"  {op}\n  return")
    assert "@main calls itself" in str(refusal(main + function("b")))


def test_a_call_in_a_loop_counts() -> None:
    text = """\
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.while(%i = %x) : tensor<8xf32> cond {
    %c = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = func.call @main(%i) : (tensor<8xf32>) -> tensor<8xf32>
    stablehlo.return %1 : tensor<8xf32>
  }
  return %0 : tensor<8xf32>
}
"""
    assert "@main calls itself" in str(refusal(text))


def test_calls_that_meet_again_are_no_circle() -> None:
    text = function("main", "a", "b", "a") + function("a", "c") + function("b", "c") + function("c")
    CallGraph.of(load(text).root).check()


def test_a_long_chain_is_followed_to_its_end() -> None:
    chain = "".join(function(f"f{i}", f"f{i + 1}") for i in range(3000))
    CallGraph.of(load(chain + function("f3000")).root).check()
    error = refusal(chain + function("f3000", "f2999"))
    assert str(error).startswith("@f2999 calls @f3000, which calls @f2999")
