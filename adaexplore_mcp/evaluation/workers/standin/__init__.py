"""`cuda` in code that runs on a machine without it: answered, accounted for, and refused where no answer is honest.

    with StandIn(target("sm_90"), own_paths=[candidate_path, task_path]) as standin:
        model = standin.place(load(candidate_path).ModelNew(*init_inputs))
        output = model(*standin.place(inputs))
    standin.answers, standin.refused, standin.notes

With real CPU tensors the numbers are real: torch's by the CPU, a Triton kernel's by whoever interprets it. With `fake`
nothing is computed, and a stand-in Triton driver compiles what is launched at the task's full size. Known limits:
arrays shared through DLPack are not intercepted; tensors made by the legacy `torch.Tensor(...)` are of unknown place; fused functions of torch are not reached by TF32's rounding.
"""

from .errors import DeviceMismatch, NotFakeable, NotHere
from .ledger import Refusal
from .memory import Poison
from .standin import StandIn
from .tags import on_device
from .warm import warm_up

__all__ = ["DeviceMismatch", "NotFakeable", "NotHere", "Poison", "Refusal", "StandIn", "on_device", "warm_up"]
