from typing import NamedTuple
class Cause(NamedTuple):
    kind: str
    text: str
    def __str__(self): return f"{self.kind}: {self.text}"
def cause_of(output):
    return Cause("unknown", "")
