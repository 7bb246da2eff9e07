"""Where the examples are, and the sizes that the tests export."""

from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"

#: Options of a GPT-2 that is small, yet divides on the rules' mesh in every dimension.
SMALL_GPT2 = (
    *("--layers", "2", "--width", "64", "--heads", "4", "--vocabulary", "512"),
    *("--batch", "4", "--sequence", "16"),
)

#: The fixture ``export``: the name of an example and its exporter's options to the file written.
Export = Callable[..., Path]
