"""What is wrong with tilegate.toml and the modules that it names."""

from tests.situations.place import Place, Seen, situation

TOML = """
    operators = ["ops"]
    kernels = ["kernels"]
    targets = ["cpu:x86-64-v2"]
"""
OPS = """
    import tilegate

    @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, served=[{"n": 4}])
    def twice(x):
        return 2 * x
"""
KERNELS = """
    import tilegate

    @tilegate.kernel("ops:twice", dynamic=("n",))
    def rows(n):
        ...
"""


def configured(place: Place, toml: str, command: str = "tilegate status") -> Seen:
    """Read a project with this tilegate.toml."""
    place.write(toml=toml, ops=OPS, kernels=KERNELS)
    return place.type(command)


@situation("There is no tilegate.toml")
def no_project(place: Place) -> Seen:
    """The folder holds no project."""
    return place.type("tilegate status")


@situation("tilegate.toml is not TOML")
def not_toml(place: Place) -> Seen:
    """`operators = [ops]`: a string without its quotes."""
    return configured(place, "operators = [ops]\n")


@situation("An unknown key")
def unknown_key(place: Place) -> Seen:
    """`operator = ["ops"]`."""
    return configured(place, 'operator = ["ops"]\n')


@situation("An unknown key in the policy")
def unknown_policy(place: Place) -> Seen:
    """`min_pases = 4` under `[policy]`."""
    return configured(place, TOML + "\n    [policy]\n    min_pases = 4\n")


@situation("A policy that is none")
def unknown_density(place: Place) -> Seen:
    """`density = "dense"` under `[policy]`."""
    return configured(place, TOML + '\n    [policy]\n    density = "dense"\n')


@situation("A string where a list belongs")
def wrong_type(place: Place) -> Seen:
    """`operators = "ops"`: one module, without brackets."""
    return configured(place, 'operators = "ops"\n')


@situation("A string where a number belongs")
def number_as_text(place: Place) -> Seen:
    """`min_passes = "4"` under `[policy]`."""
    return configured(place, TOML + '\n    [policy]\n    min_passes = "4"\n')


@situation("A key that is missing")
def no_operators_key(place: Place) -> Seen:
    """Nothing but `targets` is written down."""
    return configured(place, 'targets = ["cpu:x86-64-v2"]\n')


@situation("No operators")
def no_operators(place: Place) -> Seen:
    """`operators = []`."""
    return configured(place, "operators = []\n")


@situation("A file where a module belongs")
def path_for_module(place: Place) -> Seen:
    """`operators = ["ops.py"]`."""
    return configured(place, 'operators = ["ops.py"]\n')


@situation("One table where a list of tables belongs")
def kernel_table(place: Place) -> Seen:
    """`[kernel]`, in single brackets."""
    return configured(place, 'operators = ["ops"]\n[kernel]\noperator = "ops:twice"\n')


@situation("A target that has a name and no artifacts yet")
def later_target(place: Place) -> Seen:
    """`targets = ["hip:gfx942"]`."""
    return configured(place, TOML.replace("cpu:x86-64-v2", "hip:gfx942"), "tilegate build")


@situation("A GPU's architecture without its suffix")
def suffixless_target(place: Place) -> Seen:
    """`targets = ["cuda:sm_90"]`."""
    return configured(place, TOML.replace("cpu:x86-64-v2", "cuda:sm_90"), "tilegate build")


@situation("No kernel is bound")
def no_bindings(place: Place) -> Seen:
    """No error, and nothing to do: tilegate.toml lists no module under `kernels`."""
    return configured(place, 'operators = ["ops"]\n', "tilegate build")


@situation("A kernels module that is missing")
def no_kernels(place: Place) -> Seen:
    """`kernels = ["rows"]`, and no file of that name."""
    place.write(toml=TOML.replace('"kernels"', '"rows"'), ops=OPS)
    return place.type("tilegate status")


@situation("An operators module that is missing")
def no_operator_module(place: Place) -> Seen:
    """`operators = ["opps"]`: a slip in its name."""
    return configured(place, TOML.replace('"ops"', '"opps"'), "tilegate build")


@situation("A syntax error in a kernels module")
def kernels_syntax(place: Place) -> Seen:
    """A bracket is not closed."""
    place.write(toml=TOML, ops=OPS, kernels=KERNELS.replace("rows(n)", "rows(n"))
    return place.type("tilegate status")


@situation("A syntax error in an operators module")
def operators_syntax(place: Place) -> Seen:
    """A colon is missing."""
    place.write(toml=TOML, ops=OPS.replace("(x):", "(x)"), kernels=KERNELS)
    return place.type("tilegate build")


@situation("An operators module that raises when it is imported")
def operators_raise(place: Place) -> Seen:
    """Its last line fails. What it says may hold data, so only its length is told."""
    place.write(toml=TOML, ops=OPS + "\n    twice.servd\n", kernels=KERNELS)
    return place.type("tilegate build")


@situation("An operators module whose contract contradicts itself")
def operators_contradict(place: Place) -> Seen:
    """An output `float32[m]`, where no input has an axis `m`: told in tilegate's own words."""
    place.write(toml=TOML, ops=OPS.replace('"y": "float32[n]"', '"y": "float32[m]"'), kernels=KERNELS)
    return place.type("tilegate build")


@situation("An operators module that declares nothing")
def nothing_declared(place: Place) -> Seen:
    """The decorator was forgotten, so the kernel is bound to a plain function."""
    place.write(toml=TOML, ops="def twice(x):\n    return 2 * x\n", kernels=KERNELS)
    return place.type("tilegate build")
