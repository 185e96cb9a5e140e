"""A forked process behaves like a new interpreter."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fork_server import forked_commands, forked_python

STATE = """
import os, signal, sys
print(sys.argv, repr(sys.path[0]), __name__, os.getcwd())
print(os.environ["REGARD_TEST"], os.getenv("REGARD_OTHER"), sorted(set(os.environ) - {"_", "COLUMNS", "LINES"}))
print(sys.stdin.read(), sys.stdin.encoding, sys.stdin.errors)
print(sys.stdout.line_buffering, sys.stdout.encoding, sys.stdout.errors)
print(sys.stderr.line_buffering, sys.stderr.encoding, sys.stderr.errors)
print([signal.getsignal(number) for number in sorted(signal.valid_signals())], signal.pthread_sigmask(0, []))
print([number for number in range(99) if os.path.exists(f"/proc/self/fd/{number}")], sys.warnoptions)
"""
EXIT = """
import atexit, sys, threading
atexit.register(print, "the end")
threading.Timer(0.01, print, ["later"]).start()
sys.exit("what is wrong")
"""
WARNING = """
import warnings
warnings.warn("leak", ResourceWarning)
warnings.warn("careful")
print("unharmed")
"""
PROGRAMS = {"state": STATE, "exit": EXIT, "warning": WARNING, "signal": "import os; os.kill(os.getpid(), 9)"}
ENVIRONMENT = {"REGARD_TEST": "schön"}


def outcome(python: str, arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Return exit code, output and errors, without the path through the server in a traceback."""
    done = subprocess.run(
        [python, *arguments, "a b", "*"],
        input="text\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
    )
    return done.returncode, done.stdout, done.stderr.splitlines()[-1] if done.stderr else ""


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("options", [[], ["-W", "error"]], ids=" ".join)
def test_a_forked_program_behaves_like_a_new_interpreter(program: str, options: list[str], tmp_path: Path) -> None:
    arguments = [*options, "-c", PROGRAMS[program]]
    assert outcome(forked_python(), arguments, tmp_path) == outcome(sys.executable, arguments, tmp_path)


@pytest.mark.parametrize("options", [["-m", "file"], ["file.py"], ["FOLDER/file.py"]], ids=" ".join)
def test_modules_and_files_run_like_in_a_new_interpreter(options: list[str], tmp_path: Path) -> None:
    program = "import sys, neighbour; print(sys.argv, sys.path[0], __name__, __file__, bool(__spec__))"
    (tmp_path / "file.py").write_text(program, encoding="utf-8")
    (tmp_path / "neighbour.py").touch()
    arguments = [option.replace("FOLDER", str(tmp_path)) for option in options]
    assert outcome(forked_python(), arguments, tmp_path) == outcome(sys.executable, arguments, tmp_path)


@pytest.mark.parametrize("redirection", ["<&-", ">&- 2>&-"])
def test_a_closed_stream_is_closed_in_the_forked_process(redirection: str, tmp_path: Path) -> None:
    program = "import sys; open('streams', 'w').write(str([sys.stdin, sys.stdout, sys.stderr]))"
    written = []
    for python in (forked_python(), sys.executable):
        command = f"{shlex.join([python, '-c', program])} {redirection}"
        subprocess.run(["bash", "-c", command], check=True, cwd=tmp_path)
        written.append((tmp_path / "streams").read_text(encoding="utf-8"))
    assert written[0] == written[1]


def test_libraries_are_imported_but_nothing_of_regard() -> None:
    program = "import sys; print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'regard'}))"
    assert subprocess.check_output([forked_python(), "-c", program], text=True) == "['torch']\n"


@pytest.mark.parametrize("command", ["OMP_NUM_THREADS=3 python", "ulimit -n 99; python", "python -X dev", "python -I"])
def test_a_command_in_another_environment_or_with_another_option_starts_an_interpreter(command: str) -> None:
    program = "import os, resource, sys; print(sys.flags, os.environ['OMP_NUM_THREADS'], resource.getrlimit(7))"
    program += "; print('torch' in sys.modules)"
    outputs = [
        subprocess.check_output(
            ["bash", "-c", f"{command} -c {shlex.quote(program)}"],
            text=True,
            env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        )
        for folder in (forked_commands(), Path(sys.executable).parent)
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].endswith("False\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 3), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_reaches_the_forked_process(number: int, code: int) -> None:
    program = """
import sys, time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(3)
"""
    with subprocess.Popen([forked_python(), "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
    assert process.returncode == code


def test_an_ignored_signal_is_ignored_by_the_forked_process() -> None:
    program = "import signal; print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)])"
    outputs = [
        subprocess.check_output(["bash", "-c", f"trap '' INT HUP; {shlex.join([python, '-c', program])}"])
        for python in (forked_python(), sys.executable)
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"SIG_IGN") == 2


def test_a_killed_command_ends_its_forked_process() -> None:
    program = "import time; print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([forked_python(), "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # at the end of the last process that could write


def test_forked_processes_draw_different_random_numbers() -> None:
    program = "import random, numpy; print(random.random(), numpy.random.rand())"
    draws = [subprocess.check_output([forked_python(), "-c", program]).split() for _ in range(2)]
    assert not set(draws[0]) & set(draws[1])


def test_the_command_regard_is_that_of_this_python() -> None:
    outputs = [
        subprocess.check_output([folder / "regard", "--help"])
        for folder in (forked_commands(), Path(sys.executable).parent)
    ]
    assert outputs[0] == outputs[1]
