import importlib
import io
import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import stand_ins
from stand_ins import SOURCE, kernel

from adaexplore_mcp import __version__, cli
from adaexplore_mcp.server import build_server
from adaexplore_mcp.services import Services
from adaexplore_mcp.settings import load_settings
from adaexplore_mcp.stdio import Wire

ENTRY = Path(__file__).parent / "support" / "stand_in_server.py"


@pytest.fixture
def work(tmp_path, home, monkeypatch):
    """A folder to work in, and the environment of a command."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("ADAEXPLORE_HOME", str(home))
    return work


@pytest.fixture
def run(work, monkeypatch, capsys):
    """Run the command line in this process, with stand-ins."""
    monkeypatch.setitem(sys.modules, stand_ins.CONNECT, stand_ins)

    def run(*arguments, stdin="", code=None):
        wire = Wire(io.StringIO(stdin), io.StringIO())
        monkeypatch.setattr(cli, "_claimed", lambda: wire)
        monkeypatch.setattr(sys, "stdin", wire.stdin)
        try:
            returncode = cli.main(arguments)
        except SystemExit as error:
            returncode = error.code
        printed = capsys.readouterr()
        assert code is None or returncode == code, printed.err
        return subprocess.CompletedProcess(
            arguments, returncode, wire.stdout.getvalue() + printed.out, printed.err
        )

    return run


@pytest.fixture
def run_process(work):
    """Run the command line in a process of its own, with stand-ins."""

    def run(*arguments, code):
        command = [sys.executable, str(ENTRY), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert process.returncode == code, process.stderr
        return process

    return run


@pytest.fixture
def task_id(run):
    process = run("call", "register_task", json.dumps({"source": SOURCE, "name": "softmax"}), code=0)
    return json.loads(process.stdout)["task_id"]


@pytest.mark.parametrize(
    ("action", "code"),
    [("correct", 0), ("incorrect", 1), ("compile_error", 1), ("unsupported", 3), ("crash", 3)],
)
def test_the_exit_code_tells_the_verdict(run, task_id, action, code):
    process = run(
        "call", "compile_and_verify", json.dumps({"task_id": task_id, "kernel": kernel(action)}), code=code
    )
    answer = json.loads(process.stdout)
    if action == "crash":
        assert "incident" in answer["error"]
        assert "secret" not in process.stdout
    else:
        assert answer["status"] == action
        assert process.stderr == ""


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("compile_and_verfy", "{}", "Did you mean compile_and_verify?"),
        (
            "compile_and_verify",
            '{"task_id": "task_unknown", "kernel": "k"}',
            "There is no task 'task_unknown'",
        ),
        ("compile_and_verify", '{"target": "sm_1"}', "task_id is missing"),
        ("register_task", '{"source": "not a task"}', "defines no class Model"),
    ],
)
def test_a_bad_request_is_one_line_and_code_2(run, tool, arguments, said):
    process = run("call", tool, arguments, code=2)
    assert said in json.loads(process.stdout)["error"]
    assert process.stderr.startswith("adaexplore-mcp: ")
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("call", "get_device", "not json"),
        ("call", "get_device", "[1]"),
        ("call", "get_device", "@/no/such/file.json"),
        ("call", "get_device", "{}", "--target", "sm_1"),
        ("serve", "--root", "/no/such/folder"),
        ("serve", "--toolset", "some"),
        ("serve", "--no-such-flag"),
        (),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(run, arguments):
    process = run(*arguments, code=2)
    assert process.stdout == ""
    assert process.stderr.startswith("adaexplore-mcp")
    assert process.stderr.count("\n") == 1


def test_arguments_come_from_a_file_or_from_standard_input(run, tmp_path):
    (tmp_path / "a.json").write_text('{"limit": 3}')
    for given, stdin in ((f"@{tmp_path / 'a.json'}", ""), ("-", '{"limit": 3}')):
        process = run("call", "list_tasks", given, stdin=stdin, code=0)
        assert json.loads(process.stdout)["summary"] == "0 tasks."


def test_a_candidate_from_a_file_may_lie_anywhere_and_be_any_bytes(run, task_id, tmp_path):
    file = tmp_path / "elsewhere.py"
    file.write_bytes(b"# latin-1: \xe9\n# do: correct\nf = abs\n")
    process = run(
        "call", "compile_and_verify", json.dumps({"task_id": task_id}), "--kernel-file", str(file), code=0
    )
    assert json.loads(process.stdout)["status"] == "correct"


def test_a_call_waits_as_long_as_it_takes(run, task_id):
    process = run(
        "call", "compile_and_verify", json.dumps({"task_id": task_id, "kernel": kernel("slow 3")}), code=0
    )
    assert json.loads(process.stdout)["status"] == "correct"


def test_a_call_that_is_told_not_to_wait_leaves_an_interrupted_job(run, task_id):
    payload = {"task_id": task_id, "kernel": kernel("endless"), "wait_seconds": 0}
    view = json.loads(run("call", "compile_and_verify", json.dumps(payload), code=3).stdout)
    assert view["status"] == "running"
    after = run("call", "job_status", json.dumps({"job_id": view["job_id"]}), code=3)
    assert json.loads(after.stdout)["status"] == "interrupted"


def test_errors_of_a_process_are_one_line_too(run_process):
    process = run_process("serve", "--root", "/no/such/folder", code=2)
    assert process.stdout == ""
    assert process.stderr.startswith("adaexplore-mcp: Setting roots cannot be")
    assert process.stderr.count("\n") == 1


def test_text_goes_to_standard_error_only_when_asked_for(run, task_id):
    payload = json.dumps({"task_id": task_id, "kernel": kernel("slow 2")})
    process = run("call", "compile_and_verify", payload, "--text", code=0)
    assert json.loads(process.stdout)["status"] == "correct"
    assert "… stage 1 (" in process.stderr
    assert "correct: Agrees with the reference." in process.stderr


def test_only_json_is_on_standard_output_whatever_prints(run_process, task_id):
    process = run_process(
        "call", "compile_and_verify", json.dumps({"task_id": task_id, "kernel": kernel("noise")}), code=0
    )
    assert json.loads(process.stdout)["status"] == "correct"
    assert "noise of a child" in process.stderr


def test_the_doctor_shows_a_line_per_finding(run, home):
    process = run("doctor", code=0)
    lines = process.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", "machine"],
        ["ok", "torch"],
        ["ok", "database"],
        ["ok", "roots"],
    ]
    assert "Cannot: see races." in lines[0]
    assert str(home) in lines[2]


def test_the_doctor_fails_with_the_remedy(run, home, monkeypatch):
    monkeypatch.setenv("STAND_IN_CHECK", "fail")
    process = run("doctor", code=1)
    assert "fail  torch" in process.stdout
    assert "-> Install it." in process.stdout
    home.mkdir(exist_ok=True)
    (home / "adaexplore.db").write_bytes(b"no database at all" * 300)
    process = run("doctor", code=1)
    assert "is damaged" in process.stdout


def test_settings_come_from_flags_before_the_environment(run, tmp_path):
    run("call", "job_status", "--home", str(tmp_path / "flag"), code=0)
    assert (tmp_path / "flag" / "adaexplore.db").exists()


def test_the_version_is_told(run):
    assert run("--version", code=0).stdout.strip() == __version__


def test_the_package_runs_as_a_module():
    process = subprocess.run(
        [sys.executable, "-m", "adaexplore_mcp", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert process.stdout.strip() == __version__


def test_the_demonstration_is_started_by_name(monkeypatch):
    class Demo:
        @staticmethod
        def main():
            return 5

    monkeypatch.setattr(importlib, "import_module", {"adaexplore_mcp.demo": Demo}.__getitem__)
    assert cli.main(["demo"]) == 5


def test_every_setting_has_a_flag():
    from adaexplore_mcp.settings import Settings

    parser = cli._parser()
    known = vars(parser.parse_args(["serve"]))
    assert set(Settings.model_fields) <= set(known)


def test_every_status_has_an_exit_code():
    from typing import get_args

    from adaexplore_mcp.models import JobView, Status

    statuses = set(get_args(Status)) | set(get_args(JobView.model_fields["status"].annotation)) - {"done"}
    assert set(cli.STATUS_CODES) == statuses


def test_a_kernel_file_that_is_not_there_is_named(run, task_id):
    done = run(
        "call", "compile_and_verify", json.dumps({"task_id": task_id}), "--kernel-file", "no.py", code=2
    )
    assert "no.py" in done.stderr
    assert "--kernel-file" in done.stderr


def test_a_picture_is_written_where_it_is_asked_for(run, task_id, work):
    begun = run("call", "search_step", json.dumps({"task_id": task_id}), code=0)
    asked = json.dumps({"run_id": json.loads(begun.stdout)["run_id"], "view": "plot"})
    assert "--picture PATH writes it" in run("call", "get_run", asked, code=0).stderr
    written = run("call", "get_run", asked, "--picture", "run.png", code=0)
    assert written.stderr == ""
    assert (work / "run.png").read_bytes().startswith(b"\x89PNG")
    refused = run("call", "get_run", asked, "--picture", "nowhere/run.png", code=2)
    assert "There is no folder for 'nowhere/run.png'. Check --picture." in refused.stderr
    summary = asked.replace("plot", "summary")
    without = run("call", "get_run", summary, "--picture", "none.png", code=2)
    assert "The answer holds no picture, so 'none.png' was not written." in without.stderr
    assert json.loads(without.stdout)["run_id"] in asked
    assert not (work / "none.png").exists()


def test_every_command_has_a_help(run):
    for command in ("serve", "call", "doctor", "demo"):
        assert command in run(command, "--help", code=0).stdout


def test_the_help_of_a_tool_tells_its_parameters(run):
    said = run("call", "compile_and_verify", "--help", code=0).stdout
    assert said.startswith("compile_and_verify\n\nJudge a candidate kernel against a task")
    assert "  task_id: string, required\n" in said
    assert (
        "  kernel: string, optional\n      Source text. Give exactly one of kernel, kernel_path, node_id.\n"
        in said
    )
    assert "  wait_seconds: number, default 30.0, at least 0, at most 45\n" in said
    assert "unless it is given" in said


def test_the_help_of_every_tool_holds_what_clients_are_told(run):
    settings = load_settings({})
    server = build_server(settings, Services(settings, stand_ins.connect))
    tools = anyio.run(server.list_tools)
    listed = run("call", "--help", code=0).stdout
    for tool in tools:
        first = tool.description.partition("\n")[0]
        assert f"{first}\n" in listed[listed.index(f"\n  {tool.name} ") :]
        said = run("call", tool.name, "{}", "--help", code=0).stdout
        words = " ".join(said.split())
        assert " ".join(tool.description.split()) in words
        for name, schema in tool.input_schema.get("properties", {}).items():
            assert f"\n  {name}: " in said
            assert schema.get("description", "") in words
            assert f"default {json.dumps(schema['default'])}" in said if "default" in schema else True


def test_parameters_of_objects_within_parameters_are_told_too(run):
    said = run("call", "register_task", "--help", code=0).stdout
    assert '      library_ops: "report" or "allow" or "forbid", default "report"\n' in said
    assert "      sizes: object of number or string or boolean by name, optional\n" in said


def test_the_help_of_an_unknown_tool_names_the_nearest(run):
    process = run("call", "compile_and_verfy", "--help", code=2)
    assert "Did you mean compile_and_verify?" in process.stderr
    assert process.stdout == ""


def test_rules_are_imported_with_a_report_and_exported(run, tmp_path):
    file = tmp_path / "theirs.txt"
    file.write_text(
        "You cannot use an assignment to self in a Triton kernel.||12\nnonsense\n"
        "You cannot have an else at line 9 of the module.||4\n",
        encoding="utf-8",
    )
    said = run("rules", "import", str(file), code=1).stdout
    assert "kept as unverified: 1;" in said
    assert "line 2: not of the form rule||count" in said
    assert "line 3: You cannot have an else" in said
    exported = json.loads(run("rules", "export", code=0).stdout)
    assert "You cannot use an assignment to self in a Triton kernel." in [
        rule["rule"] for rule in exported["rules"]
    ]
    assert run("rules", "export", "--format", "markdown", code=0).stdout.startswith("# Rules (")


def test_an_undecodable_line_is_named_and_the_others_are_imported(run, tmp_path):
    file = tmp_path / "theirs.txt"
    file.write_bytes(
        b"You cannot use \xff.||3\nYou cannot use an assignment to self in a Triton kernel.||1\n" * 2
    )
    said = run("rules", "import", str(file), code=1).stdout
    assert "kept as unverified: 1; known already: 0; about the rule of an earlier line: 1;" in said
    assert "  line 1: byte 0xff at character 16 is not UTF-8\n  line 3: byte 0xff" in said


def test_a_report_says_how_many_lines_it_does_not_name_and_names_all_as_json(run, tmp_path):
    file = tmp_path / "theirs.txt"
    file.write_text("nonsense\nYou cannot have an else at line 9 of the module.||4\n" * 45, encoding="utf-8")
    said = run("rules", "import", str(file), code=1).stdout
    assert said.count("  and 5 more: --json names all\n") == 2
    report = json.loads(run("rules", "import", str(file), "--json", code=1).stdout)
    assert [line["line"] for line in report["malformed"]] == list(range(1, 90, 2))
    assert [line["line"] for line in report["dropped"]] == list(range(2, 91, 2))
    assert report["dropped"][44]["text"].startswith("You cannot have an else")


def test_a_broken_entry_is_named_by_line_and_number(run, tmp_path):
    file = tmp_path / "theirs.json"
    file.write_text('[\n{"rule": 7},\n{"rule": "You cannot use an assignment to self in a Triton kernel."}]')
    said = run("rules", "import", str(file), code=1).stdout
    assert "kept as unverified: 1;" in said
    assert "  line 2, entry 1: no text under 'rule'" in said


def test_a_file_in_utf_16_is_refused_with_what_to_do(run, tmp_path):
    file = tmp_path / "theirs.txt"
    file.write_text("You cannot use a lambda in a Triton kernel.||1\n", encoding="utf-16")
    assert "Save it as UTF-8." in run("rules", "import", str(file), code=2).stderr


def test_a_person_decides_about_a_rule_and_the_decision_is_kept(run):
    rules = json.loads(run("rules", "export", code=0).stdout)["rules"]
    rule_id = rules[0]["rule_id"]
    assert "retired" in run("rules", "review", rule_id, "retire", "--who", "Ada", code=0).stdout
    assert "retire by Ada" in run("rules", "review", rule_id, "history", code=0).stdout
    assert rule_id not in run("rules", "export", code=0).stdout
    assert "0 rules wait for a person" in run("rules", "review", code=0).stdout


def test_a_merge_is_listed_and_undone_by_a_person(run, tmp_path):
    file = tmp_path / "theirs.txt"
    texts = ["You cannot use an assignment to self in a Triton kernel.", "You cannot call len() on an int."]
    file.write_text("".join(f"{text}||1\n" for text in texts), encoding="utf-8")
    run("rules", "import", str(file), code=0)
    rules = {
        rule["rule"]: rule["rule_id"] for rule in json.loads(run("rules", "export", code=0).stdout)["rules"]
    }
    one, two = (rules[text] for text in texts)
    given = {"rule_id": one, "action": "merge", "into": two, "agent": "me"}
    run("call", "review_rules", json.dumps(given), code=0)
    assert f"rules review {one} restore" in run("rules", "review", code=0).stdout
    assert (
        f"merge by me: from={one}, text={texts[0]}" in run("rules", "review", two, "history", code=0).stdout
    )
    assert f"merged into {two}" in run("rules", "review", one, "history", code=0).stdout
    back = run("rules", "review", one, "restore", "--who", "Ada", code=0).stdout
    assert texts[0] in back
    assert "merged into" not in back
    assert one in run("rules", "export", code=0).stdout
    assert one not in run("rules", "review", code=0).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["import", "nowhere.txt"], "nowhere.txt"),
        (["review", "rule_x", "confirm"], "'rule_x'"),
        (["review", "rule_x", "destroy"], "destroy"),
    ],
)
def test_a_bad_request_about_rules_is_one_line(run, arguments, said):
    assert said in run("rules", *arguments, code=2).stderr


def test_probes_need_workers(run):
    assert "no probe can be run" in run("rules", "probe", code=3).stderr
