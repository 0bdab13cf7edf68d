"""The compile job for CPU targets: IR in, one shared library out. No user Python runs here.

Runs inside the sandbox. TileLang prints two C files, one for the host and one for the device; gcc and g++
build them for the named instruction set; the launcher stands in front. TileLang's own CPU path passes no
optimization level (20 to 30 times slower on a gemm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tilegate.build.abi import abi_header
from tilegate.build.failing import Diagnosed, failure
from tilegate.build.offsets import offset_fault
from tilegate.build.requests import CompileRequest
from tilegate.build.tools import run_tool
from tilegate.records.artifact import Elaboration
from tilegate.records.canonical import decode

DLPACK_CPU = 1

COMMON = (
    "-fPIC", "-fvisibility=hidden", "-fno-ident", "-fno-math-errno", "-fno-trapping-math", "-fno-plt", "-w",
)  # fmt: skip
"""-fno-math-errno lets sqrtf be one instruction. -fno-trapping-math lets loops that clamp or choose be
vectorised, six times as fast where it was tried: nobody reads the flags that such code raises. Neither changes
a bit of a result. Never -ffast-math: kernels use infinities and NaN."""

LINK = (
    "-shared", "-nostartfiles", "-static-libgcc", "-static-libstdc++", "-Wl,-z,defs", "-Wl,-z,now",
    "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--build-id=none", "-Wl,--gc-sections", "-Wl,-s",
    "-Wl,--version-script=cpu.map",
)  # fmt: skip
"""-nostartfiles: no constructor of the C runtime runs at dlopen. -z defs: an unknown symbol fails here."""


def work(inputs: Mapping[str, bytes], emit: Callable[[str, bytes], None]) -> None:
    """Emit one `library` or one `failure` frame."""
    request = decode(CompileRequest, inputs["request"], where="compile request")
    folder = Path.cwd()
    step = "lower"
    try:
        host, device = _lower(request.elaboration, inputs["ir"])
        step = "tools"
        _write_sources(folder, request, host, device)
        for step, command in _commands(request.target.arch):  # noqa: B007 - step names the one that failed
            run_tool(command, folder)
    except BaseException as error:  # noqa: BLE001 - TVM raises what it likes
        emit("failure", failure(step, error))
    else:
        emit("library", (folder / "kernel.so").read_bytes())


def _lower(elaboration: Elaboration, ir: bytes) -> tuple[str, str]:
    """C of the host function, with weak stubs in place of the kernels, and C++ of the kernels."""
    import tilelang  # noqa: PLC0415 - seconds of import, paid only inside a job
    import tvm  # noqa: PLC0415
    from tvm import tirx  # noqa: PLC0415
    from tvm.target import Target  # noqa: PLC0415

    function = tvm.ir.load_json(ir.decode())
    target = Target("c")
    with target, tvm.transform.PassContext(config=dict(elaboration.pass_configs)):
        lowered = tilelang.lower(function, target="c")
        functions: dict[Any, Any] = dict(lowered.host_mod.functions.items())
        if len(functions) != 1:
            raise Diagnosed("host-functions", numbers={"got": len(functions)})
        fault = offset_fault(f for _, f in lowered.device_mod.functions.items())
        if fault is not None:
            raise fault
        kernels = [str(f.attrs["global_symbol"]) for _, f in lowered.device_mod.functions.items()]
        # The host printer knows only calls within its module, and fails on local buffers: so the kernels
        # are declared to it with empty bodies, which the real ones replace at link time.
        for variable, kernel in lowered.device_mod.functions.items():
            functions[variable] = kernel.with_body(tirx.Evaluate(0))
        printer = tvm.get_global_func("target.build.tilelang_c_host")
        text = printer(tvm.IRModule(functions), target).inspect_source()
    weak = "".join(f"#pragma weak {name}\n" for name in kernels)
    return weak + str(text), str(lowered.kernel_source)


def _write_sources(folder: Path, request: CompileRequest, host: str, device: str) -> None:
    header = abi_header(request.elaboration, identity=request.identity, device_type=DLPACK_CPU)
    launchers = resources.files("tilegate.build.launchers")
    for name in ("guard.h", "cpu.c", "cpu.map"):
        (folder / name).write_bytes((launchers / name).read_bytes())
    (folder / "abi.h").write_text(header)
    (folder / "host.c").write_text(host)
    (folder / "device.cc").write_text(device)


def _commands(arch: str) -> tuple[tuple[str, list[str]], ...]:
    """The tool runs in order, each with the name it fails under. All paths are relative."""
    templates, include = host_headers()
    march = f"-march={arch}"
    return (
        ("launcher", ["gcc", "-c", "-O2", march, "-std=gnu11", *COMMON, *include, "cpu.c", "-o", "cpu.o"]),
        ("host", ["gcc", "-c", "-O2", march, "-std=gnu11", "-Dhalf=uint16_t", *COMMON, *include,
                  "host.c", "-o", "host.o"]),
        ("device", ["g++", "-c", "-O3", march, "-std=c++17", "-ffunction-sections", *COMMON,
                    f"-I{templates}", "device.cc", "-o", "device.o"]),
        ("link", ["g++", *LINK, "cpu.o", "host.o", "device.o", "-lm", "-o", "kernel.so"]),
    )  # fmt: skip


def host_headers() -> tuple[Path, list[str]]:
    """TileLang's templates; and the include options of tvm_ffi, DLPack and TVM, which host code needs."""
    import tvm_ffi  # noqa: PLC0415
    from tilelang.env import TILELANG_TEMPLATE_PATH  # noqa: PLC0415

    templates = Path(str(TILELANG_TEMPLATE_PATH))
    tvm_include = templates.parent / "3rdparty" / "tvm" / "include"
    folders = (tvm_ffi.libinfo.find_include_path(), *_dlpack(), tvm_include)
    return templates, [f"-I{folder}" for folder in folders]


def _dlpack() -> tuple[str, ...]:
    import tvm_ffi  # noqa: PLC0415

    path = getattr(tvm_ffi.libinfo, "find_dlpack_include_path", None)
    return (path(),) if path else ()
