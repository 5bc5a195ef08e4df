"""Commands import a model without what it does not use, and get it where it is used."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

START = """
import sys
from headscope import standins
standins.install()
import torch
from transformers.models.bert.modeling_bert import BertModel
from transformers.models.llama.modeling_llama import LlamaForCausalLM
"""
HEAVY = ("sympy", "torch._inductor", "torch.distributed.tensor._ops", "scipy.optimize._optimize")


def run(code: str, start: str = START) -> None:
    """Run code in a process that began with stand-ins."""
    command = [sys.executable, "-W", "ignore", "-c", start + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_model_comes_without_compiler_and_machines() -> None:
    run(f"assert not [name for name in {HEAVY} if name in sys.modules]")


USES = {
    "the compiler": """
        calls = []

        @torch.compiler.disable
        def aside(x):
            calls.append(torch.compiler.is_compiling())
            return 2 * x

        aside(torch.ones(1))
        assert "torch._inductor" not in sys.modules  # there is no compiler yet
        compiled = torch.compile(lambda x: aside(x), backend="eager")
        assert compiled(torch.ones(1)).item() == 2
        assert calls == [False, False]
        from torch._dynamo.testing import CompileCounter
        counter = CompileCounter()
        torch.compile(lambda x: x + 1, backend=counter)(torch.ones(1))
        assert counter.frame_count == 1
        """,
    "assignments and masks": """
        from transformers.loss.loss_for_object_detection import linear_sum_assignment
        assert linear_sum_assignment([[5.0, 1.0], [1.0, 5.0]])[1].tolist() == [1, 0]
        assert "sympy" not in sys.modules  # torch's own stay stand-ins
        from transformers.masking_utils import TransformGetItemToIndex
        with TransformGetItemToIndex():
            assert torch.ones(3)[torch.tensor(1)].item() == 1
        assert type(TransformGetItemToIndex()).__module__.startswith("torch._dynamo")
        """,
    "tensors on many machines": """
        from transformers.distributed.parallel_utils import DTensor
        from transformers.distributed.tensor_parallel import Replicate
        assert not isinstance(torch.ones(1), DTensor)
        placed = Replicate()
        assert "sympy" not in sys.modules
        assert placed.is_replicate() and "sympy" in sys.modules
        import torch.distributed.tensor
        assert isinstance(placed._itself(), torch.distributed.tensor.Replicate)
        assert not isinstance(torch.ones(1), DTensor)
        """,
}


@pytest.mark.parametrize("use", USES)
def test_what_is_used_is_real(use: str) -> None:
    run(USES[use])


def test_whoever_imports_headscope_has_no_standins() -> None:
    code = "import sys, headscope as hs; hs.effects; from headscope.standins import _Standins"
    run(f"{code}; assert not [f for f in sys.meta_path if isinstance(f, _Standins)]", start="")


def test_scipy_is_real_where_it_is_used_without_torch() -> None:
    code = """
    from headscope import standins
    standins.install()
    import sys
    from scipy import stats
    from sklearn.manifold import MDS
    assert round(stats.norm.ppf(0.975), 2) == 1.96
    points = MDS(random_state=0, n_init=1, init="random").fit_transform([[0, 1], [1, 0], [1, 1]])
    assert points.shape == (3, 2)
    from scipy.optimize import minimize
    assert round(minimize(lambda x: (x - 2) ** 2, 0.0).x[0], 3) == 2
    assert "torch" not in sys.modules
    """
    run(textwrap.dedent(code), start="")
