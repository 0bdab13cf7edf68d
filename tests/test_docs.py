"""What the documentation says is so: its links, names, numbers and examples are held against the code."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tilegate.build.project import load_project
from tilegate.cli import commands
from tilegate.errors import ToolError, TrustError, UsageError
from tilegate.records.evaluation import EntryVerdict
from tilegate.records.isolation import Level
from tilegate.records.miss import MissReason
from tilegate.records.plan import Origin
from tilegate.records.policy import Policy
from tilegate.records.project import KernelTable, Project
from tilegate.sandbox import DESCRIBE, Job, run_job

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "tilegate"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
RECORDS, EVALUATION, SANDBOX = (TEXT[ROOT / "docs" / f"{n}.md"] for n in ("records", "evaluation", "sandbox"))

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SCHEMA = re.compile(r"\btilegate[a-z.-]*/[1-9][0-9]*\b")
ROOMS = "api|build|cli|errors|evaluate|library|pipeline|processor|records|report|rules|runtime|sandbox|store|trust"


def named(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def each_page() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=named(PAGES))


def code() -> str:
    """All source of the package, Python and C."""
    return "\n".join(
        p.read_text(encoding="utf-8") for p in sorted(SRC.rglob("*.*")) if p.suffix in (".py", ".h")
    )


def prose(text: str) -> str:
    return FENCE.sub("", text)


def spans(text: str) -> list[str]:
    """Inline code."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(text))


def rows(text: str, head: str) -> list[list[str]]:
    """The rows below the table whose head line begins so."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(head):
            next(lines)
            break
    found: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    assert found, f"there is no table {head}"
    return found


def first_column(text: str, head: str) -> list[str]:
    return [row[0] for row in rows(text, head)]


def anchors(text: str) -> list[str]:
    """Headings as GitHub links to them."""
    titles = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)) for title in titles]
    return [title.lower().replace(" ", "-") for title in plain]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_records", ROOT / "docs" / "make_records.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The pages in themselves.


@each_page()
def test_no_link_leads_nowhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(TEXT[page])):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), target


@each_page()
def test_no_heading_shadows_another_that_is_linked_to(page):
    linked = [t for t in re.findall(r"\]\(#([^)\s]+)\)", TEXT[page]) if t]
    assert [anchor for anchor in set(linked) if anchors(TEXT[page]).count(anchor) != 1] == []


@each_page()
def test_no_page_names_a_place_of_one_machine(page):
    assert re.findall(r"(?<![\w.])/(?:home|root|Users|work|tmp|mnt)\b\S*", TEXT[page]) == []


def test_every_decision_says_what_it_costs():
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert TEXT[page].startswith(f"# {int(page.name[:4])}. "), page.name
        assert {"context", "decision", "consequences"} < set(anchors(TEXT[page])), page.name
        assert any(title.startswith("options") for title in anchors(TEXT[page])), page.name


# What is made from the code.


def test_the_made_parts_are_current(maker):
    stale = [page for page in PAGES if maker.remade(TEXT[page]) != TEXT[page]]
    assert named(stale) == [], "run docs/make_records.py"


def test_every_part_that_can_be_made_stands_somewhere_once(maker):
    found = [match["name"] for text in TEXT.values() for match in maker.PART.finditer(text)]
    assert sorted(found) == sorted(maker.PARTS)


def test_no_word_of_records_toml_speaks_of_what_is_gone_or_says_itself(maker):
    for module in maker.modules_of_records():
        importlib.import_module(module)
    modules = (*maker.modules_of_records(), *maker.OF_REPORTS, *maker.OF_JOBS, *maker.OF_LAYOUT)
    kinds = {kind.__name__: kind for module in modules for kind in maker.classes_of(module)}
    kinds |= {kind.__name__: kind for _, kind in maker.KEYS}
    for name, words in maker.WORDS.items():
        if name == "fields":
            continue
        page = maker.Page(importlib.import_module(kinds[name].__module__))
        struct = issubclass(kinds[name], msgspec.Struct)
        members = kinds[name].__struct_fields__ if struct else [str(one.value) for one in kinds[name]]
        assert set(words) - {"_"} <= set(members), name
        said = {field for field, (_, docstring) in page.fields[name].items() if docstring}
        assert said & set(words) == set(), f"{name}: its docstrings say so already"


# Names.


def test_every_schema_in_the_code_stands_in_records_md_and_the_reverse():
    assert set(SCHEMA.findall(RECORDS)) == set(SCHEMA.findall(code()))


@each_page()
def test_no_page_names_a_schema_that_is_not(page):
    assert set(SCHEMA.findall(TEXT[page])) <= set(SCHEMA.findall(code()))


@each_page()
def test_no_page_names_a_module_or_function_that_is_not(page):
    dotted = re.compile(rf"(?:tilegate\.)?((?:{ROOMS})(?:\.\w+)+)\Z")
    for span in spans(TEXT[page]):
        match = dotted.match(span.removesuffix("(...)"))
        if match and not span.endswith((".md", ".py", ".h", ".c")):
            resolve(match[1])


def resolve(name: str) -> object:
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(["tilegate", *parts[:depth]]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            value = getattr(value, part)
        return value
    raise AssertionError(name)


@each_page()
def test_no_page_names_a_file_that_is_not(page):
    for span in spans(TEXT[page]):
        if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/[\w-]+\.(?:py|h|c|map|md|toml|sqlite)", span):
            homes = (ROOT, SRC, page.parent, ROOT / "docs")
            assert any((home / span).exists() for home in homes) or span.startswith(".tilegate"), span


def test_the_map_shows_every_room_and_no_other():
    text = TEXT[ROOT / "docs" / "architecture.md"]
    shown = re.findall(r"^      ([\w.]+)/?  ", text.partition("\n\n    reviewed")[0], re.MULTILINE)
    there = [p.name for p in SRC.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()]
    assert sorted(shown) == sorted(name for name in there if not name.startswith("__"))


def told_commands(text: str) -> Iterator[str]:
    for span in [*spans(text), *(m["body"] for m in FENCE.finditer(text))]:
        yield from re.findall(r"(?:^|\$ |&& |-m )tilegate ([a-z]\w*)", span, re.MULTILINE)


@each_page()
def test_no_page_names_a_command_that_is_not(page):
    assert set(told_commands(TEXT[page])) <= set(commands.commands)


def test_every_command_stands_in_records_md_with_its_answer():
    table = rows(RECORDS, "| command | answers with |")
    assert sorted(row[0] for row in table) == sorted(f"tilegate {name}" for name in commands.commands)
    reports = set(re.findall(r"tilegate\.report\.[a-z]+/\d+", code()))
    assert {row[1] for row in table} == reports


@each_page()
def test_no_page_names_a_make_target_that_is_not(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    told = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", TEXT[page], re.MULTILINE)
    assert set(told) <= set(targets)


def test_exit_codes_are_those_of_the_errors_and_of_the_help():
    told = dict(rows(RECORDS, "| code | when |"))
    assert sorted(told) == ["0", "1", "2", "3", "4"]
    for error in (UsageError, ToolError, TrustError):
        assert told[str(error.exit_code)].startswith(f"{error.__name__}`")
    helped = re.findall(r"(\d) (?:accepted|rejected|usage|a tool|trust)", commands.help or "")
    assert sorted(helped) == sorted(told)


def test_refusal_codes_are_those_that_guard_h_numbers():
    text = (SRC / "build" / "launchers" / "guard.h").read_text(encoding="utf-8")
    enumerated = re.search(r"enum tg_code \{(.*?)\}", text, re.DOTALL)
    assert enumerated is not None
    in_c = [name.removeprefix("TG_") for name in re.findall(r"TG_\w+", enumerated[1])]
    in_c[in_c.index("ON_ANOTHER_DEVICE")] = "DEVICE"  # TG_DEVICE is the number of the device
    assert [row[:2] for row in rows(RECORDS, "| code | name |")] == [[str(n), c] for n, c in enumerate(in_c)]


def test_every_reason_for_a_miss_stands_in_records_md():
    codes = [row[1] for row in rows(RECORDS, "| code | name |")][1:]
    seen = first_column(RECORDS, "| name | sentence |")
    assert sorted([*codes, *seen]) == sorted(reason.name for reason in MissReason)


def test_every_reason_for_a_rejection_stands_in_records_md():
    given = set(re.findall(r'code="([A-Z_]+)"', code()))
    assert set(first_column(RECORDS, "| code | meaning |")) == given


def test_every_verdict_and_origin_stands_in_evaluation_md():
    verdicts = first_column(EVALUATION, "| verdict | how it is found |")
    assert sorted(verdicts) == sorted(verdict.name for verdict in EntryVerdict)
    origins = first_column(EVALUATION, "| origin | entries |")
    assert sorted(origins) == sorted(origin.value for origin in Origin)


def test_media_types_are_those_of_the_layout():
    pattern = r"application/vnd\.[\w.]+(?:\+json)?"
    in_code = set(re.findall(pattern, (SRC / "store" / "layout.py").read_text(encoding="utf-8")))
    assert set(first_column(RECORDS, "| media type |")) == in_code


def test_frames_are_those_that_jobs_send():
    jobs = "\n".join(
        p.read_text("utf-8") for room in ("build", "evaluate") for p in (SRC / room).rglob("*.py")
    )
    sent = set(re.findall(r'emit\("([a-z]+)"', jobs))
    told = {word for row in rows(RECORDS, "| job | frames") for word in re.findall(r"[a-z]+(?=`)", row[1])}
    assert told == sent


def test_isolation_levels_are_those_that_can_be_asked_for():
    assert first_column(SANDBOX, "| level |") == [level.value for level in Level]


def test_a_job_sees_the_environment_that_sandbox_md_lists():
    told = [name.strip(" `") for cell in first_column(SANDBOX, "| variable |") for name in cell.split(",")]
    inside = run_job(
        Job(task="sandbox_workers:environment", inputs={}, import_paths=(str(ROOT / "tests"),)), DESCRIBE
    )
    assert sorted(told) == sorted(json.loads(inside.frames[0][1]))


def test_the_dependencies_are_those_of_the_decision():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = dict(row[:2] for row in rows(TEXT[ROOT / "docs/adr/0008-dependencies.md"], "| install |"))
    wanted = {"tilegate": project["dependencies"]}
    wanted |= {f"tilegate[{extra}]": names for extra, names in project["optional-dependencies"].items()}
    assert sorted(told) == sorted(wanted)
    for install, requirements in wanted.items():
        names = {re.match(r"(?:tilegate)?(\[\w+\]|[\w-]+)", text)[1] for text in requirements}
        assert {name.strip("` ") for name in told[install].split(",")} == names, install


# tilegate.toml, and the examples.


def example(info: str, text: str) -> list[str]:
    return [match["body"] for match in FENCE.finditer(text) if match["info"] == info]


def test_the_example_of_tilegate_toml_is_read_and_has_every_key(tmp_path):
    (text,) = example("toml", RECORDS)
    (tmp_path / "tilegate.toml").write_text(text, encoding="utf-8")
    load_project(tmp_path)
    tables = tomllib.loads(text)
    for kind, table in ((Project, tables), (Policy, tables["policy"]), (KernelTable, tables["kernel"][0])):
        assert set(table) == set(kind.__struct_fields__)


def test_the_policy_that_sandbox_md_shows_is_read(tmp_path):
    (text,) = example("toml", SANDBOX)
    (tmp_path / "tilegate.toml").write_text(f'operators = ["some.module"]\n{text}', encoding="utf-8")
    assert load_project(tmp_path).policy == Policy(isolation=(Level.FULL, Level.REDUCED))


RUNNABLE = [(page, n) for page in PAGES for n in range(len(example("python run", TEXT[page])))]


@pytest.mark.parametrize(("page", "n"), RUNNABLE, ids=[f"{named([p])[0]}-{n}" for p, n in RUNNABLE])
def test_an_example_that_is_marked_to_run_runs(page, n, tmp_path):
    path = tmp_path / "example.py"
    path.write_text(example("python run", TEXT[page])[n], encoding="utf-8")
    runpy.run_path(str(path))
