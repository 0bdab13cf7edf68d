"""The elaborate job: the author's Python runs here, and nothing but IR comes out.

Runs inside the sandbox. The parent side is build/jobs.py.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tilegate.build.failing import Diagnosed, failure
from tilegate.build.requests import ElaborateRequest
from tilegate.records.artifact import Elaboration, TensorAbi
from tilegate.records.canonical import decode, digest_of, encode
from tilegate.records.closure import Binding, Specialization
from tilegate.records.contract import Contract, TensorSpec
from tilegate.sandbox import importer

Emit = Callable[[str, bytes], None]

CONFIGS_THAT_ARE_FLAGS = ("tl.device_compile_flags",)
"""Pass configurations that are a compiler's command line: refused, like `compile_flags`."""


def work(inputs: Mapping[str, bytes], emit: Emit) -> None:
    """Emit an `elaboration` and an `ir` frame, or one `failure` frame."""
    request = decode(ElaborateRequest, inputs["request"], where="elaborate request")
    sources = {digest_of(data): data for name, data in inputs.items() if name != "request"}
    importer.install(request.files, sources)
    step = "import"
    try:
        with _target(request.lowering):  # modules may ask for the architecture while they are imported
            factory = _resolve(request.binding.factory)
            step = "factory"
            function, configs = _run(factory, request.binding, request.contract, request.specialization)
        step = "result"
        elaboration, ir = _read(request, function, configs)
    except BaseException as error:  # noqa: BLE001 - a module and a factory may raise anything, SystemExit included
        emit("failure", failure(step, error))
    else:
        emit("elaboration", encode(elaboration))
        emit("ir", ir)


def _target(lowering: str) -> Any:
    """TVM's target of `Target.lowering`, which a kernel may ask for its tile sizes."""
    import tilelang  # noqa: F401, PLC0415 - it brings tvm; seconds of import, paid only inside a job
    from tvm.target import Target  # noqa: PLC0415

    if lowering == "c":
        return Target("c")
    from tilelang.cuda import debug  # noqa: PLC0415

    # TileLang drops device asserts where it finds no toolkit, and this job sees none on any machine.
    debug._IS_CUDA_AVAILABLE = True  # noqa: SLF001
    return Target({"kind": "cuda", "arch": lowering})


def _resolve(name: str) -> Any:
    module, _, attribute = name.partition(":")
    value = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise Diagnosed("factory-missing")
        value = getattr(value, part)
    return value


def _run(
    factory: Any, binding: Binding, contract: Contract, spec: Specialization
) -> tuple[Any, dict[str, bool | int | str]]:
    """The PrimFunc of one specialization, and the pass configurations that belong to it."""
    from tilelang.jit import JITImpl  # noqa: PLC0415 - seconds of import, paid only inside a job
    from tvm.tirx import PrimFunc  # noqa: PLC0415

    factory = getattr(factory, "jit_impl", factory)  # autotuned kernels wrap the jit that is meant
    if isinstance(factory, PrimFunc):
        return factory, _pass_configs(factory, None)
    call = factory.get_tir if isinstance(factory, JITImpl) else factory
    if not callable(call):
        raise Diagnosed("factory-not-callable", got=type(factory).__name__)
    signature = factory.signature if isinstance(factory, JITImpl) else inspect.signature(factory)
    made = call(**_arguments(signature, binding, contract, spec))
    impl = factory
    if isinstance(made, JITImpl):
        impl, made = made, made.get_tir()
    if not isinstance(made, PrimFunc):
        raise Diagnosed("factory-result", got=type(made).__name__)
    return made, _pass_configs(made, impl if isinstance(impl, JITImpl) else None)


def _pass_configs(function: Any, impl: Any) -> dict[str, bool | int | str]:
    """Those of the function (T.annotate_pass_configs), under those of its decorator, as TileLang merges them."""
    attributes = function.attrs or {}
    if "tilelang_compile_flags" in attributes or (impl and impl.compile_flags):
        raise Diagnosed("compile-flags")
    own = dict(attributes["tilelang_pass_configs"]) if "tilelang_pass_configs" in attributes else {}
    merged = {**own, **((impl.pass_configs or {}) if impl else {})}
    named = {str(getattr(key, "value", key)): value for key, value in merged.items()}
    if any(name in named for name in CONFIGS_THAT_ARE_FLAGS):
        raise Diagnosed("compile-flags")
    if not all(isinstance(value, bool | int | str) for value in named.values()):
        raise Diagnosed("pass-config")
    return named


def _arguments(
    signature: inspect.Signature, binding: Binding, contract: Contract, spec: Specialization
) -> dict[str, Any]:
    """Fill a factory's parameters by name: axes, dtypes, attributes, constants; tensors for eager kernels."""
    import tilelang.language as T  # noqa: N812, PLC0415 - as TileLang's own docs spell it
    import torch  # noqa: PLC0415

    tensors = {t.name: t for t in contract.arguments_given(spec.attributes)}
    filled: dict[str, Any] = {}
    for position, parameter in enumerate(signature.parameters.values(), start=1):
        name = binding.parameters.get(parameter.name, parameter.name)
        if parameter.name in binding.constants:
            filled[parameter.name] = binding.constants[parameter.name]
        elif name in binding.dynamic:
            filled[parameter.name] = T.dynamic(name)
        elif name in spec.axes:
            filled[parameter.name] = spec.axes[name]
        elif name in spec.dtypes:
            filled[parameter.name] = spec.dtypes[name]
        elif name in spec.attributes:
            filled[parameter.name] = spec.attributes[name]
        elif name in tensors:
            tensor = tensors[name]
            # An eager kernel reads constant extents off its arguments; a dynamic one reads a symbol, so
            # that an extent baked in by mistake is seen (and refused) as the odd number given here.
            shape = [spec.axes.get(d, 97) if isinstance(d, str) else d for d in tensor.dims]
            dtype = getattr(torch, contract.dtype_of(tensor, dict(spec.dtypes)))
            filled[parameter.name] = torch.empty(shape, dtype=dtype, device="meta")
        elif parameter.default is inspect.Parameter.empty and parameter.kind in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            raise Diagnosed("factory-parameter", numbers={"position": position})
    return filled


def _read(
    request: ElaborateRequest, function: Any, configs: dict[str, bool | int | str]
) -> tuple[Elaboration, bytes]:
    """Hold the PrimFunc against the contract, and name its symbols after the contract's axes."""
    import tvm  # noqa: PLC0415

    spec = request.specialization
    if function.attrs is not None and "tilelang_out_idx" in function.attrs:
        function = function.without_attr("tilelang_out_idx")  # outputs are ours to allocate
    axes = _match(request.contract, spec, function)
    tensors = tuple(
        TensorAbi(
            name=tensor.name,
            dtype=request.contract.dtype_of(tensor, dict(spec.dtypes)),
            dims=tuple(spec.axes.get(d, d) if isinstance(d, str) else d for d in tensor.dims),
            written=any(o.name == tensor.name for o in request.contract.outputs),
            strided=tensor.strided,
        )
        for tensor in request.contract.arguments_given(spec.attributes)
    )
    tiles, stages = _tiles(function, axes)
    ir = tvm.ir.save_json(function).encode()
    symbols = tuple(dict.fromkeys(d for t in tensors for d in t.dims if isinstance(d, str)))
    return (
        Elaboration(
            operator=request.contract.name,
            kernel=request.binding.kernel,
            contract=request.contract.digest,
            closure=request.closure,
            specialization=spec,
            entry=str(function.attrs["global_symbol"]),
            tensors=tensors,
            symbols=symbols,
            tiles={axis: tiles.get(axis, ()) for axis in symbols},
            stages=stages,
            pass_configs=configs,
            ir=digest_of(ir),
        ),
        ir,
    )


def _match(contract: Contract, spec: Specialization, function: Any) -> dict[Any, str]:
    """Which contract axis each of the kernel's symbols stands for.

    1. As many buffers as the contract has arguments, in the same order.
    2. Same rank and dtype.
    3. A constant extent equals the specialized or constant one; a symbol stands for one dynamic axis.
    4. A strided input has a symbol for every stride but the last.
    """
    from tvm.tirx import Var  # noqa: PLC0415

    wanted = contract.arguments_given(spec.attributes)
    if len(function.params) != len(wanted):  # (1)
        raise Diagnosed("tensor-count", numbers={"got": len(function.params), "expected": len(wanted)})
    axes: dict[Any, str] = {}
    for parameter, tensor in zip(function.params, wanted, strict=True):
        if parameter not in function.buffer_map:
            raise Diagnosed("scalar-parameter", tensor=tensor.name)
        buffer = function.buffer_map[parameter]
        if len(buffer.shape) != len(tensor.dims):  # (2)
            numbers = {"got": len(buffer.shape), "expected": len(tensor.dims)}
            raise Diagnosed("rank", numbers=numbers, tensor=tensor.name)
        dtype = contract.dtype_of(tensor, dict(spec.dtypes))
        if str(buffer.dtype) != dtype:
            raise Diagnosed("dtype", tensor=tensor.name, got=str(buffer.dtype), expected=dtype)
        for place, extent in enumerate(buffer.shape):  # (3)
            _match_extent(tensor, place, extent, spec, axes)
        if tensor.strided and not all(isinstance(stride, Var) for stride in buffer.strides[:-1]):  # (4)
            raise Diagnosed("strides-baked", tensor=tensor.name)
    return axes


def _match_extent(
    tensor: TensorSpec, place: int, extent: Any, spec: Specialization, axes: dict[Any, str]
) -> None:
    from tvm.tirx import IntImm, Var  # noqa: PLC0415

    axis = tensor.dims[place]
    constant = int(extent) if isinstance(extent, IntImm) else None
    if isinstance(axis, int):
        if constant != axis:
            numbers = {"dim": place, "expected": axis}
            raise Diagnosed("extent-constant", numbers=numbers, tensor=tensor.name)
        return
    fixed = spec.axes.get(axis)
    if constant is not None:
        if fixed is None:
            raise Diagnosed("extent-baked", tensor=tensor.name, axis=axis)
        if constant != fixed:
            numbers = {"got": constant, "expected": fixed}
            raise Diagnosed("extent", numbers=numbers, tensor=tensor.name, axis=axis)
    elif not isinstance(extent, Var):
        raise Diagnosed("extent-expression", tensor=tensor.name, axis=axis)
    elif fixed is not None:
        raise Diagnosed("extent-open", tensor=tensor.name, axis=axis)
    elif axes.setdefault(extent, axis) != axis:
        raise Diagnosed("symbol-shared", tensor=tensor.name, axis=axis, other=axes[extent])


def _tiles(function: Any, axes: dict[Any, str]) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """Constants that divide each symbol in the IR, and pipeline depths: where tails and trips can be."""
    from tvm.tirx import IntImm, stmt_functor  # noqa: PLC0415

    found: dict[str, set[int]] = {}
    stages: set[int] = set()

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind in ("FloorDiv", "FloorMod", "Div", "Mod") and isinstance(node.b, IntImm) and int(node.b) > 1:
            for axis in _symbols_in(node.a, axes):
                found.setdefault(axis, set()).add(int(node.b))
        elif kind == "For" and "num_stages" in node.annotations:
            stages.add(int(node.annotations["num_stages"]))

    stmt_functor.post_order_visit(function.body, visit)
    return {axis: tuple(sorted(divisors)) for axis, divisors in found.items()}, tuple(sorted(stages))


def _symbols_in(expression: Any, axes: dict[Any, str]) -> set[str]:
    from tvm.tirx import stmt_functor  # noqa: PLC0415

    seen: set[str] = set()

    def visit(node: Any) -> None:
        for symbol, axis in axes.items():
            if node.same_as(symbol):
                seen.add(axis)

    stmt_functor.post_order_visit(expression, visit)
    return seen
