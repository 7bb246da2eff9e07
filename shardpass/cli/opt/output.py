"""The form in which ``shardpass opt`` gives modules back."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardpass.cli.opt.parts import BORDER
from shardpass.diagnostics import Diagnostic, ShardingError

if TYPE_CHECKING:
    from shardpass.mlir import Emit, Form, Module


@dataclass(frozen=True)
class Printing:
    """MLIR's printing flags, by what they ask for."""

    debug_info: bool = False
    pretty_debug_info: bool = False
    generic: bool = False
    local_scope: bool = False
    names_from_locations: bool = False
    assume_verified: bool = False
    skip_regions: bool = False
    elements_limit: int | None = None
    resource_limit: int | None = None

    def text(self, module: Module) -> str:
        """``module`` as text, which ends with a line break."""
        text = str(
            module.root.get_asm(
                enable_debug_info=self.debug_info or self.pretty_debug_info,
                pretty_debug_info=self.pretty_debug_info,
                print_generic_op_form=self.generic,
                use_local_scope=self.local_scope,
                use_name_loc_as_prefix=self.names_from_locations,
                assume_verified=self.assume_verified,
                skip_regions=self.skip_regions,
                large_elements_limit=self.elements_limit,
                large_resource_limit=self.resource_limit,
            )
        )
        text = module.with_places(text)
        return text if text.endswith("\n") else f"{text}\n"


@dataclass(frozen=True)
class Output:
    """Where a result goes, and as what.

    Attributes:
      path: a file, ``-`` for standard output, ``None`` for nowhere.
      emit: the form, as :meth:`shardpass.Module.to_bytes` takes it; if not said, text where it is
        printed, and what the name of the file says otherwise.
      version: the version of the bytecode; MLIR's newest if not said.
      border: what stands between the modules of a file.
      printing: how text looks.
    """

    path: str | None = "-"
    emit: Emit | None = None
    version: int | None = None
    border: str = BORDER
    printing: Printing = field(default_factory=Printing)

    def to(self, path: str | None) -> Output:
        """The same, elsewhere."""
        return replace(self, path=path)

    def formed(self, module: Module) -> bytes:
        """``module`` as it is to be written.

        Raises:
          ShardingError: as :meth:`shardpass.Module.to_bytes`; ``usage`` for a version of bytecode
            that MLIR does not write.
        """
        emit = self.form(module.form)
        if emit == "text":
            return self.printing.text(module).encode(errors="surrogateescape")
        if emit == "bytecode":
            return self._bytecode(module)
        from shardpass.cli.guard import console

        return module.to_bytes(emit, warn=lambda lost: console().report([lost]))

    def form(self, read_as: Form | None = None) -> Emit:
        """The form of a module that was read as ``read_as``."""
        from shardpass.mlir.forms import form_for

        if self.emit is not None or self.path in (None, "-"):
            return self.emit or "text"
        return form_for(self.path, read_as)

    def _bytecode(self, module: Module) -> bytes:
        from shardpass.mlir import hearing

        buffer = io.BytesIO()
        said: list[Diagnostic] = []
        try:
            with hearing(module.ir.context, said.append):
                module.root.write_bytecode(buffer, self.version)
        except ValueError as error:
            raise ShardingError(
                "usage",
                f"MLIR does not write bytecode of version {self.version}",
                notes=[d.message for d in said],
            ) from error
        return buffer.getvalue()

    def write(self, formed: Sequence[bytes], *, failed: bool) -> None:
        """Put what became of the parts of a file where it belongs.

        Half a file looks like a whole one to whoever reads it next, so that none is written where a
        part failed. What is printed is for people.
        """
        from shardpass.mlir import files

        if not formed or self.path is None:
            return
        data = f"\n{self.border}\n".encode().join(formed)
        if self.path == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif not failed:
            files.write_whole(self.path, data)

    def check(self, parts: int) -> None:
        """Refuse what cannot be written.

        Raises:
          ShardingError: ``usage``, for several modules where the form holds one.
        """
        if parts > 1 and (emit := self.form()) != "text":
            raise ShardingError("usage", f"{emit} holds one module, and the file has {parts} parts")
