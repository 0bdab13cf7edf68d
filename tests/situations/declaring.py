"""Declarations that contradict themselves or their reference: told when the module is imported."""

from functools import partial

from tests.situations.place import Place, Seen, situation

X, Y = '{"x": "float32[n]"}', '{"y": "float32[n]"}'
T_OF_X, T_OF_Y = '{"x": "T[n]"}', '{"y": "T[n]"}'


def declaring(
    place: Place,
    *,
    inputs: str = X,
    outputs: str = Y,
    more: str = "",
    parameters: str = "x",
    name: str = "twice",
) -> Seen:
    """Declare an operator with these arguments over a function with these parameters."""
    given = f"inputs={inputs}, outputs={outputs}{f', {more}' if more else ''}"
    return place.python(f"@tilegate.operator({given})\ndef {name}({parameters}):\n    return 2 * x\n")


TENSORS = (
    ("A tensor that is not described as one", "The dims are missing.", {"inputs": '{"x": "float32"}'}),
    ("An unknown dtype", "A slip in its name.", {"inputs": '{"x": "flaot32[n]"}'}),
    ("A dtype variable without alternatives", "`T` is declared nowhere.", {"inputs": T_OF_X, "outputs": T_OF_Y}),
    (
        "A dtype variable with an unknown dtype",
        "A slip in one of its alternatives.",
        {"inputs": T_OF_X, "outputs": T_OF_Y, "more": 'dtypes={"T": ("float32", "flaot16")}'},
    ),
    (
        "A dtype variable with an empty list",
        "It could stand for nothing.",
        {"inputs": T_OF_X, "outputs": T_OF_Y, "more": 'dtypes={"T": ()}'},
    ),
    ("A dtype variable that no tensor has", "It was left over.", {"more": 'dtypes={"T": ("float32", "float16")}'}),
    (
        "A dtype variable of outputs only",
        "A call could not say which dtype is meant.",
        {"outputs": T_OF_Y, "more": 'dtypes={"T": ("float32", "float16")}'},
    ),
    (
        "A dtype variable with the name of a dtype",
        "`float32` would mean two things.",
        {"more": 'dtypes={"float32": ("float32", "float16")}'},
    ),
    ("A computed dim", "Dims are axes or constants.", {"inputs": '{"x": "float32[n + 1]"}'}),
    (
        "An output with an axis that no input has",
        "A call could not say how large the output is.",
        {"outputs": '{"y": "float32[m]"}'},
    ),
    ("No inputs", "Where should the kernel run?", {"inputs": "{}", "parameters": ""}),
    ("No outputs", "What is computed?", {"outputs": "{}"}),
    ("Inputs that are no mapping", "A list of texts.", {"inputs": '["float32[n]"]'}),
    (
        "A name that cannot stand in generated code",
        "`class` is a word of Python.",
        {"outputs": '{"class": "float32[n]"}'},
    ),
    ("A name that is none", "A space in it.", {"more": 'name="twice as much"'}),
    ("A word with two meanings", "`n` is an axis and an attribute.", {
        "more": 'attributes={"n": int}', "parameters": "x, n"
    }),
    (
        "An output with the name of an attribute",
        "`by` would mean two things.",
        {"outputs": '{"by": "float32[n]"}', "more": 'attributes={"by": float}', "parameters": "x, by"},
    ),
    ("An output that is overwritten, and not declared in place", "Input and output have one name.", {
        "outputs": X
    }),
    (
        "A tensor in place that is described twice, and not alike",
        "It has one dtype going in and another coming out.",
        {"outputs": '{"x": "float16[n]"}', "more": 'in_place=("x",)'},
    ),
    ("A tensor in place that is no output", "It is read only.", {"more": 'in_place=("x",)'}),
)  # fmt: skip

VIEWS = (
    ("A strided output", "Outputs are allocated by tilegate.", {"outputs": '{"y": "float32[n] strided"}'}),
    ("A strided scalar", "It has no dims, and so no strides.", {"inputs": '{"x": "float32[] strided"}', "outputs": '{"y": "float32[]"}'}),
    ("Nothing but optional inputs", "Where should the kernel run?", {"inputs": '{"x": "float32[n] optional"}', "parameters": "x=None"}),
    (
        "An axis of optional inputs only",
        "Without the mask nobody knows `m`.",
        {"inputs": '{"x": "float32[n]", "mask": "bool[m] optional"}', "parameters": "x, mask=None"},
    ),
    ("An optional input that must be given", "Its parameter has no default.", {
        "inputs": '{"x": "float32[n]", "mask": "bool[n] optional"}', "parameters": "x, mask"
    }),
    ("An input with a default", "A tensor may be None only where it is declared optional.", {"parameters": "x=None"}),
)  # fmt: skip

PARAMETERS = (
    (
        "A parameter that is not declared",
        "The reference takes `by`, and the declaration does not know it.",
        {"parameters": "x, by=2.0"},
    ),
    ("A declared input that the function does not take", "A slip in its name.", {"parameters": "xs"}),
    ("Any number of arguments", "A kernel has a fixed list of tensors.", {"parameters": "x, *more"}),
    (
        "An input that is an attribute as well",
        "It is one or the other.",
        {"more": 'attributes={"x": float}'},
    ),
    (
        "An attribute of an unsupported kind",
        "Attributes are plain values.",
        {"more": 'attributes={"axes": list}', "parameters": "x, axes"},
    ),
    (
        "An attribute whose default is of another kind",
        "An int is not taken for a float.",
        {"more": 'attributes={"by": float}', "parameters": "x, by=2"},
    ),
)

PROMISES = (
    (
        "A string where a tuple of names belongs",
        '`("n")` is a string in parentheses.',
        {"more": 'tolerance=tilegate.Tolerance(reduces=("n"))'},
    ),
    ("A name twice", "Once is enough.", {"more": 'tolerance=tilegate.Tolerance(reduces=("n", "n"))'}),
    (
        "A tolerance over an unknown axis",
        "The axis stands in no tensor.",
        {"more": 'tolerance=tilegate.Tolerance(reduces=("k",))'},
    ),
    ("A tolerance that is a number", "It is more than one.", {"more": "tolerance=1e-3"}),
    ("A tolerance that allows everything", "Or nothing.", {"more": 'tolerance=tilegate.Tolerance(factor=float("inf"))'}),
    (
        "A sum in an integer",
        "`accumulate` says in which floating dtype a kernel may sum up.",
        {"more": 'tolerance=tilegate.Tolerance(accumulate="int32")'},
    ),
    ("A promise about no input", "`y` is an output.", {"more": 'values={"y": (0.0, 1.0)}'}),
    ("A range that is none", "One number in place of two.", {"more": 'values={"x": 1.0}'}),
    ("A range upside down", "Low first.", {"more": 'values={"x": (1.0, 0.0)}'}),
    ("An unknown word about NaN and infinity", "There are two.", {"more": 'non_finite="ignored"'}),
    ("A served workload without an axis", "A workload gives every axis its extent.", {"more": "served=[{}]"}),
    (
        "A served workload with an unknown word",
        "`dtype` is no axis, dtype variable or attribute here.",
        {"more": 'served=[{"n": 4, "dtype": "float32"}]'},
    ),
    ("A served workload with a negative extent", "Extents begin at 0.", {"more": 'served=[{"n": -4}]'}),
    ("A served workload that is no mapping", "A number alone.", {"more": "served=[4]"}),
    (
        "A served workload with another dtype",
        "`T` has two alternatives, and this is neither.",
        {
            "inputs": T_OF_X,
            "outputs": T_OF_Y,
            "more": 'dtypes={"T": ("float32", "float16")}, served=[{"n": 4, "T": "float64"}]',
        },
    ),
    (
        "A served workload without an attribute",
        "`by` has no default.",
        {"more": 'attributes={"by": float}, served=[{"n": 4}]', "parameters": "x, by"},
    ),
)  # fmt: skip

for _title, _how, _words in (*TENSORS, *VIEWS, *PARAMETERS, *PROMISES):
    situation(_title, how=_how)(partial(declaring, **_words))


@situation("Two operators of one name")
def declared_twice(place: Place) -> Seen:
    """`more` is a module that declares the same."""
    text = """
        import tilegate

        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"})
        def twice(x):
            return 2 * x
    """
    place.write(ops=text, more=text)
    return place.python("import ops, more")


@situation("Something that is no function")
def no_function(place: Place) -> Seen:
    """A reference's source is part of the contract, so it is a def."""
    return place.python('tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"})(max)\n')


@situation("A reference that is a lambda")
def a_lambda(place: Place) -> Seen:
    """Its source cannot be told from what stands around it."""
    return place.python("""
        declare = tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"}, name="twice")
        declare(lambda x: 2 * x).contract()
    """)


@situation("A reference that reaches what has no text")
def no_text(place: Place) -> Seen:
    """An object of its module, which may be another one each time: evidence could not say which it is for."""
    return place.python("""
        FACTORS = {"twice": object()}

        @tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"})
        def twice(x):
            return FACTORS["twice"] * x

        twice.contract()
    """)


@situation("A reference whose source is not at hand")
def no_source(place: Place) -> Seen:
    """It was made from a text in memory."""
    return place.python("""
        made = {"tilegate": tilegate}
        exec("def twice(x):\\n    return 2 * x", made)
        declare = tilegate.operator(inputs={"x": "float32[n]"}, outputs={"y": "float32[n]"})
        declare(made["twice"]).contract()
    """)
