"""The author's Python becomes IR that depends on nothing but the source, whatever form the factory has."""

import pytest

from tests.elaborations import SCALED, bound, closure_of, elaborate_all
from tilegate.build import jobs
from tilegate.build.toolchain import read_toolchain
from tilegate.records.artifact import Elaboration, TensorAbi
from tilegate.records.canonical import digest_of
from tilegate.records.target import Target
from tilegate.rules.expansion import expand

pytestmark = pytest.mark.compiler

KERNELS = """
import tilelang
import tilelang.language as T

from scaling import rows_of


@tilelang.jit
def lazy(M, N, by, dtype):
    return rows_of(M, N, by, dtype)


@tilelang.jit(out_idx=[1])
def allocating(M, N, by, dtype):
    return rows_of(M, N, by, dtype)


@tilelang.jit
def eager(x, y, by):
    M, N = T.dynamic("M"), T.const("N")
    x: T.Tensor[[M, N], T.float32]
    y: T.Tensor[[M, N], T.float32]
    with T.Kernel(M) as row:
        for j in T.serial(N):
            y[row, j] = x[row, j] * T.float32(by)


def plain(M, N, by, dtype):
    return rows_of(M, N, by, dtype)


def returning_a_jit(M, N, by, dtype):
    @tilelang.jit(pass_configs={"tirx.disable_vectorize": True})
    def inner():
        return rows_of(M, N, by, dtype)

    return inner


anything = T.dynamic("anything")


@T.prim_func
def bare(a: T.Tensor((anything, 24), "float32"), b: T.Tensor((anything, 24), "float32")):
    with T.Kernel(anything) as row:
        for j in T.serial(24):
            b[row, j] = a[row, j] * 2.0


@tilelang.autotune(configs=[{"block": 8}, {"block": 16}])
@tilelang.jit
def tuned(M, N, by, dtype, block=8):
    return rows_of(M, N, by, dtype, block)


@tilelang.jit
def renamed(rows, columns, *, kind, factor, block):
    return rows_of(rows, columns, factor, kind, block)


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True, "tirx.disable_vectorize": False})
def configured(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        T.annotate_pass_configs({"tirx.disable_vectorize": True, "tl.config_index_bitwidth": 64})
        with T.Kernel(M) as row:
            for j in T.serial(N):
                y[row, j] = x[row, j] * 2.0

    return main


@tilelang.jit
def tiled(M, N):
    @T.prim_func
    def main(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 4)) as block:
            part = T.alloc_local((32,), "float32")
            for k in T.Pipelined(N // 32, num_stages=3):
                for i, j in T.grid(4, 32):
                    part[j] = x[block * 4 + i, k * 32 + j] * 2.0
                    y[block * 4 + i, k * 32 + j] = part[j]

    return main
"""

SCALING = """
import tilelang.language as T


def rows_of(M, N, by, dtype, block=1):
    @T.prim_func
    def rows(x: T.Tensor((M, N), dtype), y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block)) as first:
            for i, j in T.grid(block, N):
                if first * block + i < M:
                    y[first * block + i, j] = x[first * block + i, j] * T.cast(by, dtype)

    return rows
"""

TYPE = {"dtype": "T"}
RENAMED = {"rows": "M", "columns": "N", "kind": "T", "factor": "by"}
CASES = {
    "lazy": bound("kernels:lazy", parameters=TYPE),
    "allocating": bound("kernels:allocating", parameters=TYPE),
    "eager": bound("kernels:eager"),
    "plain": bound("kernels:plain", parameters=TYPE),
    "returning_a_jit": bound("kernels:returning_a_jit", parameters=TYPE),
    "bare": bound("kernels:bare"),
    "tuned": bound("kernels:tuned", parameters=TYPE),
    "tuned.chosen": bound("kernels:tuned", parameters=TYPE, constants={"block": 16}),
    "renamed": bound("kernels:renamed", parameters=RENAMED, constants={"block": 16}),
    "configured": bound("kernels:configured"),
    "tiled": bound("kernels:tiled", dynamic=("M", "N"), specialize={"T": ("float32",)}),
    "product": bound(
        "kernels:lazy",
        parameters=TYPE,
        specialize={"N": (8, 24), "T": ("float16", "float32"), "by": (2.0, 3.0)},
    ),
}


def write(folder):
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "scaling.py").write_text(SCALING)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("kernels"))
    return elaborate_all(folder, {name: (SCALED, binding) for name, binding in CASES.items()})


FORMS = ["lazy", "allocating", "eager", "plain", "returning_a_jit", "bare", "tuned", "renamed"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_factory_is_taken(made, form):
    [one] = made[form]
    assert isinstance(one, Elaboration)
    assert one.tensors == (
        TensorAbi(name="x", dtype="float32", dims=("M", 24), written=False),
        TensorAbi(name="y", dtype="float32", dims=("M", 24), written=True),
    )
    assert one.symbols == ("M",)
    assert one.entry == {"eager": "eager", "bare": "bare"}.get(form, "rows")


def test_a_form_does_not_show_in_the_ir(made):
    """Lazy, plain and allocating factories return one and the same function."""
    assert len({made[form][0].ir for form in ("lazy", "plain", "allocating", "returning_a_jit")}) == 1


def test_parameters_rename_and_constants_are_given(made):
    assert made["renamed"][0].tiles == {"M": (16,)}
    assert made["tuned"][0].tiles == {"M": (8,)}
    assert made["tuned.chosen"][0].tiles == {"M": (16,)}
    assert made["tuned.chosen"][0].ir == made["renamed"][0].ir


def test_tiles_and_pipeline_depths_are_found(made):
    [one] = made["tiled"]
    assert one.symbols == ("M", "N")
    assert one.tiles == {"M": (4,), "N": (32,)}
    assert one.stages == (3,)
    assert (made["lazy"][0].tiles, made["lazy"][0].stages) == ({"M": ()}, ())


def test_pass_configs_of_function_and_decorator_are_carried(made):
    """As TileLang merges them: the decorator overrules the function."""
    assert made["configured"][0].pass_configs == {
        "tl.disable_warp_specialized": True,
        "tl.config_index_bitwidth": 64,
        "tirx.disable_vectorize": False,
    }
    assert made["returning_a_jit"][0].pass_configs == {"tirx.disable_vectorize": True}
    assert made["lazy"][0].pass_configs == {}


def test_every_specialization_has_ir_of_its_own(made):
    points = [
        (one.tensors[0].dims[1], one.tensors[0].dtype, one.specialization.attributes["by"])
        for one in made["product"]
    ]
    assert len(points) == len(set(points)) == 8
    assert len({one.ir for one in made["product"]}) == 8
    [lazy] = made["lazy"]
    assert [one.ir for one in made["product"] if one.specialization == lazy.specialization] == [lazy.ir]


def test_ir_and_identity_depend_on_neither_folder_nor_process(made, tmp_path):
    deep = tmp_path / "another" / "deeper folder"
    deep.mkdir(parents=True)
    closure, sources = closure_of(write(deep), CASES["lazy"])
    asked = [jobs.Asked(closure, SCALED, one) for one in expand(closure.binding, SCALED)]
    [again] = jobs.elaborate(asked, sources)
    [first] = made["lazy"]
    assert again.elaboration == first
    assert digest_of(again.ir) == first.ir
    assert b"deeper" not in again.ir
    toolchain, level3, level2 = (
        read_toolchain(),
        Target.parse("cpu:x86-64-v3"),
        Target.parse("cpu:x86-64-v2"),
    )
    identity = jobs.identity_of(first, level3, toolchain)
    assert jobs.identity_of(again.elaboration, level3, read_toolchain()) == identity
    assert jobs.identity_of(again.elaboration, level2, toolchain) != identity
