"""On a machine with a GPU, nvcc and gcc: are calls served there as the tests with a stand-in driver say?

    PYTHONPATH=src python benchmarks/device/serving.py

Kernels by hand, behind the launcher as it is shipped: they triple where references double, so that a result
tells who answered. Prints what calls cost, then a line for each question, and exits 1 where one failed.
"""

# ruff: noqa: PLR2004, SLF001 - small numbers tell who answered; torch's own tests use these names
from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(HERE.parent)]

import torch  # noqa: E402
from figures import medians  # noqa: E402

import tilegate  # noqa: E402
from tests import world  # noqa: E402
from tests.driver.hosts import host, integer, launch, pointer  # noqa: E402
from tests.driver.standin import kernel  # noqa: E402
from tests.gpus import part  # noqa: E402
from tilegate.errors import DeviceError  # noqa: E402
from tilegate.records.shape import Range, ShapeClass  # noqa: E402

KERNELS = """
extern "C" __global__ void scale(const float *x, float *y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = 3 * x[i];
}
extern "C" __global__ void first(float *x, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) x[i] *= 3;
}
extern "C" __global__ void second(float *x, int n) {}
extern "C" __global__ void wild(const float *x, float *y, int n) { *(volatile float *)16 = x[0]; }
"""
GRID = ("(n + 255) / 256", 256, 1, 1)


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="twice", served=[{"n": 1024}]
)
def twice(x):
    return 2 * x


@tilegate.operator(
    inputs={"x": "float32[n]"}, outputs={"x": "float32[n]"}, in_place=("x",), name="twice_in_place"
)
def twice_(x):
    return x.mul_(2)


@tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="wild")
def wild(x):
    return 2 * x


@torch.library.custom_op("beside::twice", mutates_args=())
def beside(x: torch.Tensor) -> torch.Tensor:
    return twice(x)


@beside.register_fake
def _(x):
    return torch.empty_like(x)


def artifacts() -> tuple[list[world.Part], list[world.Part]]:
    """For the GPU, and one for the processor beside them."""
    with tempfile.TemporaryDirectory() as name:
        source, cubin = Path(name) / "kernels.cu", Path(name) / "kernels.cubin"
        source.write_text(KERNELS)
        nvcc = "/usr/local/cuda/bin/nvcc" if Path("/usr/local/cuda/bin/nvcc").exists() else "nvcc"
        major, minor = torch.cuda.get_device_capability()
        arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
        subprocess.run([nvcc, "-cubin", f"-arch={arch}", str(source), "-o", str(cubin)], check=True)
        code = cubin.read_bytes()
    through = [pointer("AT(0)->data"), pointer("AT(1)->data"), integer("n")]
    alone = [pointer("AT(0)->data"), integer("n")]
    both = host(launch(*alone, numbers=GRID, name="first"), launch(*alone, numbers=GRID, name="second"))
    pairs = [kernel("pointer", "int32", name=name) for name in ("first", "second")]
    wide = [ShapeClass(axes={"n": Range(start=0, stop=2**30)}, alignment_bytes=16)]

    def made(operator, body, kernels):
        return part(operator.contract(), arch, host=body, kernels=kernels, cubin=code, classes=wide)

    def straight(operator, name):
        body = host(launch(*through, numbers=GRID, name=name))
        return made(operator, body, [kernel("pointer", "pointer", "int32", name=name)])

    gpu = [straight(twice, "scale"), made(twice_, both, pairs), straight(wild, "wild")]
    return gpu, [world.part(twice.contract(), world.SCALE, "FACTOR=3")]


def x(n: int = 1024, **options) -> torch.Tensor:
    return torch.ones(n, device="cuda", **options)


def counts(name: str = "twice") -> tuple[int, int]:
    found = tilegate.stats()[name]
    return sum(found.hits.values()), sum(found.misses.values())


def tripled(found: torch.Tensor) -> bool:
    return bool((found == 3).all())


def doubled(found: torch.Tensor) -> bool:
    return bool((found == 2).all())


class Served:
    """The questions that one release answers; `root` holds releases `gpu`, `both`, `cpu`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.use("gpu")

    def use(self, name: str):
        return tilegate.use(self.root / name, allow_unsigned=True)

    def capture_before_anything_was_loaded(self) -> bool:
        graph, given = torch.cuda.CUDAGraph(), x()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            found = twice(given)
        given.fill_(2)
        graph.replay()
        return bool((found == 6).all()) and counts() == (1, 0)

    def eager(self) -> bool:
        found = twice(x())
        return tripled(found) and found.is_cuda and tripled(twice_(x())) and counts() == (1, 0)

    def current_device_and_stream_are_left_as_they_were(self) -> bool:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            twice(x())
            return torch.cuda.current_stream() == side and torch.cuda.current_device() == 0

    def on_a_side_stream_behind_late_inputs(self) -> bool:
        given, side = x(1 << 22), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            given.fill_(5)
            found = twice(given)
        side.synchronize()
        return bool((found == 15).all()) and counts() == (1, 0)

    def outputs_belong_to_the_stream_they_were_made_on(self) -> bool:
        """Freed and made again on that stream, memory is the same; on another one it is not."""
        given, side = x(1 << 20), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            first = twice(given).data_ptr()
            again = twice(given).data_ptr()
        return first == again != twice(given).data_ptr()

    def no_grad_inference_and_parameters(self) -> bool:
        weight = torch.nn.Parameter(x())
        with torch.no_grad():
            one = tripled(twice(weight))
        with torch.inference_mode():
            return one and tripled(twice(x())) and counts() == (2, 0)

    def a_gradient_is_the_references(self) -> bool:
        given = x(requires_grad=True)
        (gradient,) = torch.autograd.grad(twice(given).sum(), given)
        return doubled(gradient) and counts() == (0, 1)

    def under_autocast_the_reference(self) -> bool:
        with torch.autocast("cuda", torch.float16):
            return doubled(twice(x())) and counts() == (0, 1)

    def graphs_are_recorded_and_told_to_be_captured_again(self) -> bool:
        told = []
        undo = tilegate.on_recapture(told.append)
        graph, given = torch.cuda.CUDAGraph(), x()
        twice(given)
        with torch.cuda.graph(graph):
            found = twice(given) + 0
        (held,) = (g for g in tilegate.graphs() if g.captured() is graph)
        good = list(held.artifacts.values()) == [1] and held.generation == tilegate.generation()
        with tilegate.reference_only():
            graph.replay()
            good &= tripled(found) and [g.captured() for g in told[-1].graphs if g.captured() is graph] == [
                graph
            ]
            again = torch.cuda.CUDAGraph()
            with torch.cuda.graph(again):
                found = twice(given) + 0
            again.replay()
            good &= doubled(found)
        undo()
        return good and told[-1].generation == tilegate.generation()

    def make_graphed_callables(self) -> bool:
        call = torch.cuda.make_graphed_callables(lambda given: twice(given) + 0, (x(),))
        return tripled(call(x())) and any(g.artifacts for g in tilegate.graphs())

    def compiled(self) -> bool:
        call = torch.compile(lambda given: twice(given + 0) + 0, fullgraph=True)
        good = tripled(call(x())) and counts() == (1, 0)
        with tilegate.reference_only():
            good &= doubled(call(x()))
        given = x(requires_grad=True)
        (gradient,) = torch.autograd.grad(call(given).sum(), given)
        return good and doubled(gradient)

    def compiled_in_place(self) -> bool:
        call, given = torch.compile(lambda one: (twice_(one), one + 1), fullgraph=True), x()
        found, more = call(given)
        return tripled(found) and tripled(given) and bool((more == 4).all())

    def compiled_into_cuda_graphs(self) -> bool:
        call = torch.compile(lambda given: twice(given + 0) + 0, fullgraph=True, mode="reduce-overhead")
        good = all(tripled(call(x()).clone()) for _ in range(4))
        return good and any(g.artifacts for g in tilegate.graphs())

    def processor_and_gpu_each_have_their_own(self) -> bool:
        told = self.use("both")
        good = tripled(twice(x())) and tripled(twice(torch.ones(8))) and len(told.served["twice"]) == 2
        return good and counts() == (2, 0) and twice.explain(x()).target.startswith("cuda")

    def a_release_for_another_architecture_is_told_at_load(self) -> bool:
        told = self.use("other")
        return doubled(twice(x())) and "built for cuda:sm_80; this is" in told.skipped[0]

    def bad_calls_are_the_references(self) -> bool:
        class Mine(torch.Tensor):
            pass

        odd = {
            "on the processor": torch.ones(8),
            "strided": x(2048)[::2],
            "expanded": x(1).expand(64),
            "misaligned": x(65)[1:],
            "double": x(dtype=torch.float64),
            "half": x(dtype=torch.float16),
            "matrix": torch.ones(4, 4, device="cuda"),
            "meta": torch.ones(8, device="meta"),
            "subclass": x().as_subclass(Mine),
            "negative": torch._neg_view(-x()),
            "2^31 elements": torch.ones(2**31, device="cuda"),
            "beyond evidence": torch.ones(2**30 + 4, device="cuda"),
        }
        good = True
        for name, given in odd.items():
            found = twice(given)
            same = given.is_meta or doubled(found)
            if not same or found.shape != given.shape or found.device != given.device:
                print(f"  bad: {name}")
                good = False
        with torch._subclasses.fake_tensor.FakeTensorMode():
            good &= twice(torch.ones(4, device="cuda")).shape == (4,)
        good &= twice(x(0)).shape == (0,)
        return good and counts() == (1, len(odd) + 1)

    def a_dead_device_is_told_and_nothing_more_runs(self) -> bool:
        command = [sys.executable, __file__, "--fault", str(self.root / "gpu")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        return done.stdout.strip().endswith("ok")


def fault(release: str) -> None:
    """In a process of its own: a kernel writes where nothing is."""
    tilegate.use(release, allow_unsigned=True)
    given = x()
    twice(given)
    torch.cuda.synchronize()
    tilegate.synchronized()
    wild(given)
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        print("torch met it")
    for _ in range(2):
        try:
            twice(given)
        except DeviceError as error:
            print(error)
            named = [s.partition(" for")[0] for s in error.suspects]
            if error.device != "cuda:0" or "body" not in named:
                return
        else:
            return
    print("ok")


def costs(served: Served) -> list[str]:
    """Host time of calls whose kernels are short, in us: medians of interleaved rounds."""
    given = x()
    compiled_op = torch.compile(lambda one: twice(one + 0), fullgraph=True)
    compiled_plain = torch.compile(lambda one: twice.reference(one + 0), fullgraph=True)
    node = torch.ops.tilegate.twice.default
    found: dict[str, float] = {}
    with torch.no_grad():
        for name, cases in {
            "gpu": [
                ("served call, artifacts for GPUs alone", lambda: twice(given)),
                ("torch.mul, the same call", lambda: torch.mul(given, 2)),
                ("the node of a compiled graph, called eagerly", lambda: node(given)),
                ("torch.library.custom_op around the same call", lambda: beside(given)),
                ("compiled function with the node in it", lambda: compiled_op(given)),
                ("compiled function with the reference in it, fused", lambda: compiled_plain(given)),
            ],
            "both": [
                ("served call, artifacts for the processor too", lambda: twice(given)),
                ("torch.mul, at the same time", lambda: torch.mul(given, 2)),
            ],
        }.items():
            served.use(name)
            for _, call in cases:
                call()
            found |= medians(cases, rounds=15, calls=500)
            torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph
    begin, end = (vars(graph)[name] for name in ("capture_begin", "capture_end"))

    def capture(first, last):
        def run():
            one = graph()
            with torch.cuda.stream(side):
                first(one)
                twice(given)
                last(one)

        return run

    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    bare = capture(begin.__wrapped__, end.__wrapped__)
    found |= medians(
        [("a capture, recorded", capture(begin, end)), ("a capture, not recorded", bare)], rounds=5, calls=20
    )
    return [f"{microseconds:8.2f} us  {name}" for name, microseconds in found.items()]


def main() -> int:
    if sys.argv[1:2] == ["--fault"]:
        fault(sys.argv[2])
        return 0
    failed, lines, started = False, [], time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        gpu, cpu = artifacts()
        world.write_parts(root / "gpu", *gpu)
        world.write_parts(root / "both", *gpu, *cpu)
        world.write_parts(root / "other", part(twice.contract(), "sm_80", cubin=b"none"))
        told = Served(root)
        print(told.use("gpu"))
        questions: dict[str, Callable[[], bool]] = {
            key.replace("_", " "): getattr(told, key)
            for key in vars(Served)
            if key[0] != "_" and key != "use"
        }
        for title, question in questions.items():
            told.use("gpu")
            torch._dynamo.reset()
            try:
                good = question()
            except Exception:  # noqa: BLE001 - the next question may still be answered
                traceback.print_exc()
                good = False
            failed |= not good
            print(f"{time.monotonic() - started:6.1f} s  {title}: {good}", file=sys.stderr, flush=True)
            lines.append(
                f"{'PASS' if good else 'FAIL'}  {title}" + ("" if good else f"   {tilegate.stats()}")
            )
        lines = [*costs(told), *lines]
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    print("\n".join(lines), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
