"""Every sentence that a compiler trace can say, with what to try. Slots are typed; nothing else is filled in."""

from __future__ import annotations

from tilegate.records.trace import ErrorClass as E
from tilegate.rules.device_templates import DEVICE_TEMPLATES, Template

TEMPLATES: dict[str, Template] = {
    # The binding and what the factory made of it.
    "factory-missing": Template(
        E.IMPORT,
        "the factory is not in its module",
        "check `factory` of the binding: package.module:function",
    ),
    "factory-not-callable": Template(
        E.FACTORY_RESULT,
        "the factory cannot be called; its class: {got}",
        "bind a @tilelang.jit function, or a function that returns a @T.prim_func",
    ),
    "factory-parameter": Template(
        E.CONTRADICTION,
        "parameter {position} of the factory is no axis, dtype variable or attribute of the contract",
        "rename it in `parameters`, or give it a value in `constants`",
    ),
    "factory-result": Template(
        E.FACTORY_RESULT,
        "the factory returned no PrimFunc; what it returned is of class: {got}",
        "return the @T.prim_func itself, neither compiled nor called",
    ),
    "factory-raised": Template(
        E.FACTORY_RAISED,
        "the factory raised {kind}, with a message of {length} characters",
        "call the factory by hand on the build host to read the message",
    ),
    "factory-exits": Template(
        E.FACTORY_RAISED,
        "the kernel's module or factory leaves the process",
        "remove the exit: a build imports the module and calls the factory",
    ),
    "compile-flags": Template(
        E.UNSUPPORTED,
        "the kernel asks for compile flags, which no build passes on",
        "drop compile_flags from @tilelang.jit, and tl.device_compile_flags from its pass configurations",
    ),
    "pass-config": Template(
        E.UNSUPPORTED,
        "a pass configuration of the kernel is neither a number, a truth value nor a word",
        "drop it from pass_configs: a build records each by name and value",
    ),
    # The kernel against the contract.
    "tensor-count": Template(
        E.CONTRADICTION,
        "the kernel takes {got} arguments where the contract has {expected} tensors",
        "inputs first, then outputs, in the contract's order; an in-place tensor stands once",
    ),
    "scalar-parameter": Template(
        E.CONTRADICTION,
        "the kernel takes a scalar where the contract has tensor {tensor}",
        "make the scalar an attribute, which is fixed at build",
    ),
    "rank": Template(
        E.CONTRADICTION,
        "{tensor} has rank {got} in the kernel and {expected} in the contract",
        "declare the shape that the kernel takes, and reshape around the call",
    ),
    "dtype": Template(
        E.CONTRADICTION,
        "{tensor} is {got} in the kernel and {expected} in the contract",
        "pass the dtype variable to the factory, or narrow the contract's alternatives",
    ),
    "extent": Template(
        E.CONTRADICTION,
        "axis {axis} of {tensor} is {got} in the kernel and {expected} in the binding",
        "the factory must use the value that it is given",
    ),
    "extent-constant": Template(
        E.CONTRADICTION,
        "dimension {dim} of {tensor} is {expected} in the contract and something else in the kernel",
        "let the kernel take that very extent, or make it an axis of the contract",
    ),
    "extent-baked": Template(
        E.CONTRADICTION,
        "axis {axis} of {tensor} is dynamic in the binding and constant in the kernel",
        "use T.dynamic for it, or list its values under `specialize`",
    ),
    "extent-open": Template(
        E.CONTRADICTION,
        "axis {axis} of {tensor} is specialized in the binding and a symbol in the kernel",
        "list it under `dynamic`, or let the factory take its value",
    ),
    "extent-expression": Template(
        E.UNSUPPORTED,
        "axis {axis} of {tensor} is an expression in the kernel",
        "only constants and plain symbols can be guarded: introduce a symbol of its own",
    ),
    "symbol-shared": Template(
        E.CONTRADICTION,
        "one symbol of the kernel stands for axis {axis} of {tensor} and for axis {other}",
        "give both the same axis in the contract, or two symbols in the kernel",
    ),
    "strides-baked": Template(
        E.CONTRADICTION,
        "{tensor} is strided in the contract and dense in the kernel",
        "take it as T.StridedTensor with a T.dynamic symbol for every stride but the last",
    ),
    "host-functions": Template(
        E.UNSUPPORTED,
        "the kernel lowers to {got} host functions, where one is linked",
        "one PrimFunc per kernel",
    ),
    # Reading the source.
    "module-missing": Template(
        E.IMPORT,
        "a module that is imported is neither in the closure nor installed",
        "a dynamic import is not followed: import it plainly, or install the package",
    ),
    "import-failed": Template(
        E.IMPORT,
        "a name is not in the module that it is imported from",
        "import the module by hand to read the message",
    ),
    "import-raised": Template(
        E.IMPORT,
        "importing the module raised {kind}, with a message of {length} characters",
        "import the module by hand to read the message",
    ),
    "source-syntax": Template(
        E.SYNTAX,
        "the source is no Python that this interpreter reads",
        "import the module by hand to read the message",
    ),
    # What the c target does not have (TileLang 0.1.15).
    "no-bfloat16": Template(
        E.UNSUPPORTED,
        "the c target has no bfloat16",
        "narrow the dtypes to float32 and float16 for CPU targets",
    ),
    "no-float8": Template(
        E.UNSUPPORTED, "the c target has no 8-bit floats", "build this dtype for a GPU target"
    ),
    "no-vector-math": Template(
        E.UNSUPPORTED,
        "the c target does not know a math function or cast, perhaps only where a loop is vectorized",
        'T.serial, or pass_configs={"tirx.disable_vectorize": True}; else write it with comparisons and arithmetic',
    ),
    "no-shared-memory": Template(
        E.UNSUPPORTED, "the c target has no shared memory", "use T.alloc_local in kernels for CPU targets"
    ),
    "no-cumsum": Template(E.UNSUPPORTED, "the c target has no T.cumsum", "write the scan as a serial loop"),
    "no-threads": Template(
        E.UNSUPPORTED,
        "the kernel names thread indices, which the c target has not",
        "use T.Parallel or T.serial",
    ),
    "layout-not-inferred": Template(
        E.LOWERING,
        "TileLang cannot infer the layout of a buffer",
        "on the c target use T.alloc_local; on a GPU let the width be a multiple of the threads",
    ),
    "parallel-over-local": Template(
        E.LOWERING,
        "a local buffer is indexed inside T.Parallel, which TileLang rejects since 0.1.14",
        "use T.serial or T.grid over local buffers",
    ),
    "step-slice": Template(E.UNSUPPORTED, "a slice with a step is not supported", "copy element by element"),
    "lowering-failed": Template(
        E.LOWERING,
        "TileLang could not lower the kernel: {kind}, with a message of {length} characters",
        "lower it by hand on the build host to read the message",
    ),
    # The host compiler.
    "missing-header": Template(
        E.HOST_COMPILER,
        "the generated source includes a header that is not there",
        "install it, or drop the include",
    ),
    "generated-syntax": Template(
        E.HOST_COMPILER,
        "the generated source, or a helper pasted into it, is not valid C",
        "look for a missing ; or brace in T.import_source text",
    ),
    "helper-linkage": Template(
        E.HOST_COMPILER,
        "a helper pasted into the generated source has another linkage or type than the call of it declares",
        'write extern "C" in front of it: T.call_extern declares what it calls as a C function',
    ),
    "undefined-symbol": Template(
        E.HOST_COMPILER,
        "the kernel calls a function that nothing supplies",
        "T.call_extern may name libm functions and pasted helpers only",
    ),
    "tool-failed": Template(
        E.HOST_COMPILER,
        "a compiler failed ({kind}), with a message of {length} characters",
        "compile the kernel by hand on the build host to read the message",
    ),
    "toolchain-missing": Template(
        E.MISSING_TOOL,
        "TileLang is not installed where the build runs",
        "pip install 'tilegate[build]'   (tilegate doctor shows the rest)",
    ),
    "tool-missing": Template(
        E.MISSING_TOOL,
        "{tool} is not installed",
        "apt-get install gcc g++; nvcc and ptxas come with the CUDA toolkit   (tilegate doctor shows the rest)",
    ),
    "tool-killed": Template(
        E.SIGNAL,
        "{tool} died of signal {signal}",
        "build again; if it stays, simplify the kernel's expressions",
    ),
    "library-refused": Template(
        E.HOST_COMPILER,
        "the library would do more on opening than hold code ({objections} objections)",
        "no constructors, no libraries beside libc and libm: drop the pasted source that brings them",
    ),
    # How a job ended.
    "job-exited": Template(
        E.PROTOCOL,
        "the job left with status {code} before it had a result",
        "remove what ends the process: a build imports the module and calls the factory",
    ),
    "job-signalled": Template(
        E.SIGNAL, "the job died of signal {code}", "build again; if it stays, bisect the kernel"
    ),
    "job-wall": Template(
        E.TIMEOUT,
        "the job took longer than it may",
        "look for a loop that never ends in the module or its factory",
    ),
    "job-memory": Template(
        E.MEMORY, "the job's processes held too much memory together", "make tiles or unrolled loops smaller"
    ),
    "job-processes": Template(
        E.MEMORY, "the job ran too many processes at once", "look for what the factory starts"
    ),
    "job-files": Template(
        E.MEMORY, "the job made too many temporary files", "look for what the factory writes"
    ),
    "job-silent": Template(E.SILENT, "the job said nothing for too long", "look for a loop that never ends"),
    "job-protocol": Template(
        E.PROTOCOL,
        "the job's results are not in the form that was agreed",
        "nothing may write to the result pipe",
    ),
    "job-too-large": Template(
        E.OUTPUT, "the job returned more than it may", "unroll less: the IR or library is too large"
    ),
    "memory": Template(E.MEMORY, "memory ran out", "make the tile or the unrolled loop smaller"),
    **DEVICE_TEMPLATES,
}
