"""The program as a whole: version, help and its cost, broken pipes, progress bars, and text that cannot steer a terminal."""

import subprocess
import sys

import pytest
from cli_fakes import lanewise

from lanewise import __version__
from lanewise.cli import options, terminal


def test_version_prints_and_leaves():
    assert lanewise("--version").stdout == f"lanewise {__version__}\n"


@pytest.mark.parametrize("command", ["generate", "chat", "inspect", "quantize", "explain", "targets"])
def test_every_command_has_help(command):
    done = lanewise(command, "--help")
    assert done.exit_code == 0
    assert "Usage:" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [(("fly",), "No such command 'fly'"), (("explain",), "OP"), (("targets", "--wings"), "--wings"), (("inspect", "a", "b"), "unexpected")],
)
def test_wrong_usage_is_one_line_that_points_to_the_help(args, words):
    done = lanewise(*args)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("lanewise: error: ")
    assert done.stderr.endswith("; see lanewise --help\n")
    assert words in done.stderr


def test_no_command_at_all_prints_the_help_and_is_no_success():
    done = lanewise()
    assert done.exit_code == 2
    assert "generate" in done.stdout + done.stderr


@pytest.mark.parametrize(("redirection", "code"), [("</dev/null", 0), ("<&-", 0), (">&-", 0), ("2>&-", 0), (">/dev/full", 2)])
def test_a_stream_that_is_closed_or_full_is_no_traceback(redirection, code):
    command = f'"{sys.executable}" -m lanewise targets {redirection}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert done.stderr == ("lanewise: error: cannot write the output: No space left on device\n" if code else "")


def test_help_loads_nothing_heavy():
    script = "import sys\nfrom lanewise.cli import main\nsys.argv = ['lanewise', '--help']\ntry: main()\nexcept SystemExit: pass\n"
    script += "print([m for m in ('numpy', 'tokenizers', 'jinja2', 'gguf', 'rich', 'torch', 'lanewise.engine') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_first_token_waits_only_for_what_it_needs(tiny_gguf):
    idle = ("rich", "jinja2", "gguf", "statistics", "numpy.random", "lanewise.oracle", "lanewise.bench")
    script = f"import sys\nfrom lanewise.cli import main\nsys.argv = ['lanewise', 'generate', {str(tiny_gguf)!r}, '-p', 'the', '-n', '1']\n"
    script += f"try: main()\nexcept SystemExit: pass\nprint(); print('lanewise.engine' in sys.modules, [m for m in {idle} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "True []"


def test_a_reader_that_leaves_early_is_no_error():
    script = "from lanewise.cli import main\nimport sys\nsys.argv = ['lanewise', 'targets', '--json']\nsys.stdin.read()\nmain()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_a_terminal_that_cannot_show_a_character_gets_a_question_mark():
    script = "from lanewise.cli import main, options\nimport sys\nsys.argv = ['lanewise', '--version']\n"
    script += "try: main()\nexcept SystemExit: pass\noptions.emit('caf\\u00e9')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        timeout=60,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.splitlines()[-1] == b"caf?"


def test_generated_text_keeps_its_bytes_in_a_pipe_and_cannot_steer_a_terminal(monkeypatch, capsys):
    text = "a\x1b[2J\tb\n\u200d"
    options.emit(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    options.emit(text)
    assert capsys.readouterr().out == "a\\x1b[2J\tb\n\u200d"


def test_what_a_model_says_of_itself_cannot_steer_a_terminal(capsys):
    terminal.complain("note", "x\x1b]0;title\x07\u2028y")
    assert capsys.readouterr().err == "lanewise: note: x\\x1b]0;title\\x07\\u2028y\n"


def test_a_table_in_a_pipe_is_not_cut(capsys):
    terminal.print_table(("name", "n"), [("x" * 300, 5), ("[bold]y\x1b", 10)], right=("n",))
    head, first, second = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert first == "x" * 300 + "   5"
    assert second.startswith("[bold]y\\x1b ")
    assert second.endswith(" 10")
    assert head.endswith(" n")


def test_json_has_no_number_that_a_parser_refuses(capsys):
    terminal.print_json({"a": [float("nan"), (float("inf"), 1.5)], "b": True})
    assert capsys.readouterr().out == '{\n  "a": [\n    null,\n    [\n      null,\n      1.5\n    ]\n  ],\n  "b": true\n}\n'


@pytest.mark.parametrize(("nbytes", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (97_900_000, "97.9 MB"), (5e12, "5.0 TB")])
def test_sizes_are_in_decimal_units(nbytes, words):
    assert terminal.size(nbytes) == words


def test_a_bar_is_drawn_on_a_terminal_only_and_is_gone_at_the_end(monkeypatch):
    with terminal.Progress() as progress:
        progress("load", 1, 2)
        assert progress._bar is None
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        progress("load", 1, 2)
        assert progress._bar is not None
        progress("prefill", 1, 2)
        assert progress._bar.tasks[0].description == "prefill"
        progress("prefill", 2, 2)
        assert progress._bar is None
        progress("prefill", 1, 1)  # over before it began: nothing to draw
        assert progress._bar is None
        progress("load", 1, 2)
    assert progress._bar is None
