"""What is wrong with @tilegate.kernel: read from the module's text, before anything runs."""

import importlib
from functools import partial
from unittest import mock

from tests.situations.place import Place, Seen, situation
from tests.situations.project import KERNELS, OPS, TOML
from tilegate import pipeline
from tilegate.pipeline.tools import Tools
from tilegate.records.declaration import Declaration
from tilegate.runtime.operator import Operator

LONG = 200
"""Characters that nobody wants to read."""

BINDING = '@tilegate.kernel("ops:twice", dynamic=("n",))'

OPERATORS = (
    OPS
    + """
    @tilegate.operator(
        inputs={"x": "T[n]"}, outputs={"y": "T[n]"}, dtypes={"T": ("float32", "float16")}, attributes={"by": float}
    )
    def scaled(x, by):
        return by * x
"""
)


def described(*_: object, **__: object) -> list[Declaration]:
    """What the job that reads operators would give, without a process of its own."""
    module = importlib.import_module("ops")
    return [value.declaration() for value in vars(module).values() if isinstance(value, Operator)]


def bound(place: Place, decorator: str, *, operators: str = OPS) -> Seen:
    """Build with another binding."""
    place.write(toml=TOML, ops=operators, kernels=KERNELS.replace(BINDING, decorator))
    tools = Tools(describe=described)
    place.during(mock.patch.object(pipeline, "build", partial(pipeline.build, tools=tools)))
    return place.type("tilegate build")


def written(place: Place, kernels: str, **files: str) -> Seen:
    """Build with another module of kernels."""
    place.write(toml=TOML, ops=OPS, kernels=kernels, **files)
    return place.type("tilegate build")


OF_THE_TEXT = (
    ("An operator that is no `module:function`", '@tilegate.kernel("twice", dynamic=("n",))'),
    ("An operator that is not imported", '@tilegate.kernel(twice, dynamic=("n",))'),
    ("A binding without an operator", '@tilegate.kernel(dynamic=("n",))'),
    ("A second positional argument", '@tilegate.kernel("ops:twice", ("n",))'),
    ("An unknown argument of a binding", '@tilegate.kernel("ops:twice", dynamc=("n",))'),
    ("A binding that is not written out", '@tilegate.kernel("ops:twice", dynamic=AXES)'),
    ("Arguments from elsewhere", '@tilegate.kernel("ops:twice", **BINDING)'),
    ("A string where a tuple of axes belongs", '@tilegate.kernel("ops:twice", dynamic=("n"))'),
    ("A set of values", '@tilegate.kernel("ops:twice", specialize={"n": {64, 128}})'),
    ("A key that is given twice", '@tilegate.kernel("ops:twice", specialize={"n": 64, "n": 128})'),
    ("A value that is none", '@tilegate.kernel("ops:twice", dynamic=("n",), constants={"block": None})'),
    ("A kernel's name that is none", '@tilegate.kernel("ops:twice", kernel="fast rows", dynamic=("n",))'),
)

OF_THE_CONTRACT = (
    ("An operator that nobody declares", '@tilegate.kernel("ops:thrice", dynamic=("n",))'),
    ("A module that is not there", '@tilegate.kernel("opps:twice", dynamic=("n",))'),
    ("An unknown axis in a binding", '@tilegate.kernel("ops:twice", dynamic=("m",))'),
    ("A dynamic axis that is given twice", '@tilegate.kernel("ops:twice", dynamic=("n", "n"))'),
    ("An axis that is neither dynamic nor specialized", '@tilegate.kernel("ops:twice")'),
    ("An axis that is both", '@tilegate.kernel("ops:twice", dynamic=("n",), specialize={"n": 64})'),
    ("An extent that is none", '@tilegate.kernel("ops:twice", specialize={"n": "64"})'),
    ("No value at all", '@tilegate.kernel("ops:twice", specialize={"n": ()})'),
    ("A value that is listed twice", '@tilegate.kernel("ops:twice", specialize={"n": (64, 64)})'),
    ("More artifacts than anybody wants", f'@tilegate.kernel("ops:twice", specialize={{"n": {tuple(range(1, 4100))}}})'),
    ("An unknown word in `specialize`", '@tilegate.kernel("ops:twice", dynamic=("n",), specialize={"T": "float16"})'),
    ("An unknown word in `parameters`", '@tilegate.kernel("ops:twice", dynamic=("n",), parameters={"rows": "N"})'),
    (
        "A parameter that is a constant as well",
        '@tilegate.kernel("ops:twice", dynamic=("n",), parameters={"rows": "n"}, constants={"rows": 4})',
    ),
    ("A constant with a name of the contract", '@tilegate.kernel("ops:twice", dynamic=("n",), constants={"n": 4})'),
)  # fmt: skip

OF_ATTRIBUTES = (
    ("A dtype variable that is left open", '@tilegate.kernel("ops:scaled", dynamic=("n", "T"), specialize={"by": 2.0})'),
    ("A dtype that is no alternative", '@tilegate.kernel("ops:scaled", dynamic=("n",), specialize={"T": "float64", "by": 2.0})'),
    ("An attribute without a value", '@tilegate.kernel("ops:scaled", dynamic=("n",))'),
    ("An attribute of another kind", '@tilegate.kernel("ops:scaled", dynamic=("n",), specialize={"by": 2})'),
)  # fmt: skip

for _title, _text in (*OF_THE_TEXT, *OF_THE_CONTRACT):
    _how = f"`{_text}`." if len(_text) < LONG else "`specialize` lists 4,099 values of `n`."
    situation(_title, how=_how)(partial(bound, decorator=_text))
for _title, _text in OF_ATTRIBUTES:
    situation(_title, how=f"`{_text}`, where the operator has a dtype variable `T` and an attribute `by`.")(
        partial(bound, decorator=_text, operators=OPERATORS)
    )


@situation("A module that tilegate.toml does not list")
def unlisted_operator(place: Place) -> Seen:
    """`@tilegate.kernel("more:more", dynamic=("n",))`: the module is there, but not under `operators`."""
    text = KERNELS.replace("ops:twice", "more:more")
    return written(place, text, more=OPS.replace("def twice", "def more"))


@situation("A kernel that is bound inside of a function")
def nested_binding(place: Place) -> Seen:
    """Nobody could see it before it runs."""
    inner = KERNELS.replace("\n    ", "\n        ").replace("import tilegate", "pass", 1)
    return written(place, f"import tilegate\n\ndef make():{inner}")


@situation("One name for two kernels of an operator")
def bound_twice(place: Place) -> Seen:
    """Evidence and reports know a kernel by its name."""
    return written(place, KERNELS + KERNELS)


@situation("An import that leads out of the package")
def relative_import(place: Place) -> Seen:
    """`from .. import shared`, in a module that is in no package."""
    return written(place, KERNELS + "\n    from .. import shared\n")


@situation("A kernel in a package of the toolchain")
def toolchain_module(place: Place) -> Seen:
    """`operator = "torch.nn.functional:gelu"` in a `[[kernel]]` table."""
    place.write(
        toml="""
            operators = ["ops"]

            [[kernel]]
            operator = "torch.nn.functional:gelu"
            factory = "kernels:rows"
            dynamic = ["n"]
        """,
        ops=OPS,
        kernels=KERNELS,
    )
    return place.type("tilegate build")


@situation("A source that is a link to elsewhere")
def linked_source(place: Place) -> Seen:
    """What a person reviewed would not be what is built."""
    place.write(toml=TOML, ops=OPS)
    (place.root / "elsewhere.py").write_text("import tilegate\n")
    (place.project / "kernels.py").symlink_to(place.root / "elsewhere.py")
    return place.type("tilegate build")


@situation("A source that nobody would review")
def large_source(place: Place) -> Seen:
    """More than a megabyte of comments."""
    return written(place, KERNELS + "#" * (1 << 20))
