"""`regard chat` in a pseudo-terminal and with pipes: replies, commands, signals and any input."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chat_names import train_chatbot
from tests.fork_server import forked_python
from tests.pseudo_terminal import PseudoTerminal, pseudo_terminal
from typer.testing import CliRunner

from regard.cli import app
from regard.data.dialogues import read_dialogues

KNOWLEDGE = "When do you open?\tWe open at nine.\nWhen do you close?\tWe close at six.\n"


@pytest.fixture
def terminal(chat_run: Path) -> Iterator[PseudoTerminal]:
    with pseudo_terminal("chat", str(chat_run), "--device", "cpu") as opened:
        assert "reads the last 4 turns, searches with beam 3" in " ".join(opened.read_until("you> ").split())
        yield opened


@pytest.fixture
def knowledge(tmp_path: Path) -> str:
    path = tmp_path / "questions.tsv"
    path.write_text(KNOWLEDGE, encoding="utf-8")
    return str(path)


def run(*arguments: str, text: str | bytes = "") -> str:
    result = CliRunner().invoke(app, ["chat", *arguments, "--device", "cpu"], input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [forked_python(), "-m", "regard", "chat", *arguments, "--device", "cpu"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_conversation_in_a_terminal(terminal: PseudoTerminal, tmp_path: Path) -> None:
    assert terminal.ask("My name is Ben.") == "bot> Hello Ben!\n"
    assert terminal.ask("What is my name?") == "bot> You are Ben.\n"
    assert terminal.ask("/turns 1") == "turns is 1\n"
    assert terminal.ask("/retry") == "bot> I do not know.\n"
    assert terminal.ask("/turns default") == "turns is 4, as in training\n"
    assert terminal.ask("/retry") == "bot> You are Ben.\n"
    assert terminal.ask("/undo") == "removed: What is my name?\n"
    assert terminal.ask("/history") == "you  My name is Ben.\nbot  Hello Ben!\n"
    assert terminal.ask("//quit").startswith("bot> ")
    assert "you  /quit\n" in terminal.ask("/history")
    assert terminal.ask(f"/save {tmp_path}/talk.jsonl").startswith("appended 4 turns to ")
    (dialogue,) = read_dialogues(tmp_path / "talk.jsonl")
    assert [turn.text for turn in dialogue][:3] == ["My name is Ben.", "Hello Ben!", "/quit"]
    assert terminal.ask("/reset") == "a new conversation\n"
    assert terminal.ask("/history") == "nothing has been said yet\n"
    assert terminal.ask("/undo") == "nothing has been said yet; write a message first\n"
    assert terminal.ask("") == ""
    terminal.type("/quit\r")
    assert terminal.wait() == 0


def test_why_shows_attended_turns_and_words_in_a_window_of_any_width(terminal: PseudoTerminal) -> None:
    for message in ("My name is Ben.", "I like tea.", "What is my name?"):
        terminal.ask(message)
    shown = terminal.ask("/why")
    assert shown.startswith("not read: the first turn\n")
    assert [line[:3] for line in shown.splitlines() if "%" in line[:9]] == ["bot", "you", "bot", "you"]
    assert "█" in shown
    assert "Ben! " in shown
    terminal.resize(20)
    for command in ("/why", "/help", "/set"):
        narrow = terminal.ask(command).splitlines()
        assert max(map(len, narrow)) <= 20
        assert len(narrow) > 10
    assert terminal.ask("/undoo").split()[-1] == "message"


def test_options_are_changed_by_commands(terminal: PseudoTerminal) -> None:
    assert terminal.ask("/set beam=1") == "beam is 1\n"
    assert terminal.ask("Hello!") == "bot> Hello, who are you?\n"
    shown = " ".join(terminal.ask("/retry").split())
    assert shown.endswith("no other reply; widen it with /beam 2, or sample with /temperature 0.8")
    assert terminal.ask("/temperature 0.01") == "temperature is 0.01; now the model samples with temperature 0.01\n"
    assert terminal.ask("/retry") == "bot> Hello, who are you?\n"
    assert terminal.ask("/seed") == "seed is 0\n"
    assert terminal.ask("/beam 0") == "/beam must be an integer of at least 1, but is 0\n"
    assert terminal.ask("/nbest 2") == "nbest is 2\n"
    assert terminal.ask("Bye.") == "bot> Bye.\n2. Bye.\n"
    assert "\ntop-k             off\n" in terminal.ask("/set")
    assert "did you mean /undo? //undoo sends it as a message" in terminal.ask("/undoo")
    assert terminal.ask("/save") == "name a file, as in /save talk.jsonl\n"
    assert "No such file" in terminal.ask("/save /does/not/exist.jsonl")
    terminal.type("/hist\t\r")  # the tab key completes the command
    terminal.read_until("you  Hello!")


def test_ctrl_c_clears_the_line_and_ctrl_d_ends(terminal: PseudoTerminal) -> None:
    terminal.type("What is")
    terminal.read_until("What is")
    terminal.interrupt("you> ")
    terminal.interrupt("Ctrl-D or /quit ends the conversation")
    terminal.read_until("you> ")
    assert terminal.ask("My name is Ben.") == "bot> Hello Ben!\n"
    assert terminal.ask("/history") == "you  My name is Ben.\nbot  Hello Ben!\n"
    terminal.type("\x1b[A\x1b[A\r")  # arrow up twice
    assert "bot> " in terminal.read_until("you> ")
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_ctrl_c_stops_a_reply_and_keeps_the_conversation(chat_run: Path) -> None:
    endless = ["--max-tokens", "60000", "--min-tokens", "60000", "--beam", "1"]
    with pseudo_terminal("chat", str(chat_run), "--device", "cpu", *endless) as terminal:
        terminal.read_until("you> ")
        terminal.type("My name is Ben.\r")
        terminal.read_until("bot> Hello Ben")  # shown long before the reply ends
        terminal.interrupt("stopped; the reply ends here")
        terminal.read_until("you> ")
        terminal.ask("/set beam=2")
        terminal.type("What is my name?\r")
        terminal.read_until("bot> ")
        terminal.interrupt("stopped; nothing has changed")
        terminal.read_until("you> ")
        shown = terminal.ask("/history")
        assert shown.startswith("you  My name is Ben.\nbot  Hello Ben")
        assert shown.count("you  ") == 1
        terminal.ask("/undo")
        assert terminal.ask("/history") == "nothing has been said yet\n"


def test_no_input_and_no_reply_controls_the_terminal(terminal: PseudoTerminal) -> None:
    assert terminal.ask("Be red.") == "bot> \\x1b[31mred\n"
    terminal.type("\x16\x1b[2J\x16\x07x\r")  # Ctrl-V before a control character
    terminal.read_until("bot> ")
    terminal.read_until("you> ")
    assert "you  \\x1b[2J\\x07x\n" in terminal.ask("/history")
    terminal.type(b"\xff\xfe \xed\xa0\x80\r")
    terminal.read_until("bot> ")
    terminal.read_until("you> ")
    assert "you  \ufffd" in terminal.ask("/history")
    terminal.type("Bye. " * 1200 + "\r")
    terminal.read_until("the message is too long for the model, which does not read its first")
    terminal.read_until("bot> ")
    terminal.read_until("you> ")
    assert "… (5,999 characters)" in terminal.ask("/history")
    assert "\x1b[2J" not in terminal.raw
    assert "\x1b[31mred" not in terminal.raw


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_no_styles(chat_run: Path, environment: dict[str, str]) -> None:
    with pseudo_terminal("chat", str(chat_run), "--device", "cpu", environment=environment) as terminal:
        terminal.read_until("you> ")
        assert terminal.ask("Hello!") == "bot> Hello, who are you?\n"
        assert terminal.ask("/retry").startswith("bot> ")
        assert "\x1b[1" not in terminal.raw
        assert "\x1b[2" not in terminal.raw


def test_replies_alone_go_to_a_file_that_output_is_redirected_to(chat_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "replies.txt"
    with pseudo_terminal("chat", str(chat_run), "--device", "cpu", redirect=f"> '{file}'") as terminal:
        terminal.read_until("you> ")
        terminal.ask("My name is Ben.")
        assert "Ben" in terminal.ask("/why")
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert file.read_text(encoding="utf-8") == "Hello Ben!\n\n"


def test_each_line_of_stdin_has_its_reply_and_a_blank_line_begins_a_conversation(chat_run: Path) -> None:
    lines = ["My name is Ben.", "What is my name?", "", " ", "What is my name?", "/undo", "Be red."]
    replies = run(str(chat_run), text="\n".join(lines)).split("\n")
    assert len(replies) == len(lines) + 1
    assert replies[:5] == ["Hello Ben!", "You are Ben.", "", "", "I do not know."]


@pytest.mark.parametrize(("turns", "reply"), [("3", "You are Dora."), ("1", "I do not know.")])
def test_turns_change_what_a_reply_knows(chat_run: Path, turns: str, reply: str) -> None:
    assert run(str(chat_run), "--turns", turns, text="My name is Dora.\nWhat is my name?").splitlines()[1] == reply


def test_json_has_replies_with_their_scores_and_attention(chat_run: Path) -> None:
    text = "My name is Ben.\nWhat is my name?\n\nBe red.\n"
    objects = list(map(json.loads, run(str(chat_run), "--json", "--why", text=text).splitlines()))
    assert [(entry["dialogue"], entry["turn"]) for entry in objects] == [(1, 1), (1, 2), (2, 1)]
    assert [entry["message"] for entry in objects] == ["My name is Ben.", "What is my name?", "Be red."]
    assert objects[1]["reply"]["text"] == "You are Ben."
    assert objects[1]["reply"]["logprob"] < 0
    turns = objects[1]["attention"]["turns"]
    assert [turn["text"] for turn in turns] == ["My name is Ben.", "Hello Ben!", "What is my name?"]
    assert sum(turn["weight"] for turn in turns) == pytest.approx(1, abs=1e-5)
    assert objects[2]["reply"]["text"] == "\x1b[31mred"


def test_why_and_retrieved_replies_are_notes_beside_plain_replies(chat_run: Path, knowledge: str) -> None:
    result = CliRunner().invoke(
        app,
        ["chat", str(chat_run), "--why", "--retrieve", knowledge, "--top", "1", "--device", "cpu"],
        input="Hello!\n",
    )
    assert result.stdout == "Hello, who are you?\n"
    assert "We open at nine.  to: When do you open?" in result.stderr
    assert "regard: you 100% █" in result.stderr


def test_a_line_of_a_megabyte_is_read_at_its_end_and_a_note_says_so(chat_run: Path) -> None:
    result = CliRunner().invoke(app, ["chat", str(chat_run), "--device", "cpu"], input="Bye. " * 200_000 + "\nBye.\n")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("regard: line 1 is too long for the model, which does not read its first ")


def test_bytes_that_are_not_utf_8_are_read_as_replacement_characters(chat_run: Path) -> None:
    data = b"\xff\xfe\n\x00\x1b[2J\n\xed\xa0\x80\nMy name is Ben.\n"
    result = CliRunner().invoke(app, ["chat", str(chat_run), "--json", "--device", "cpu"], input=data)
    assert [json.loads(line)["message"] for line in result.stdout.splitlines()][:2] == ["\ufffd\ufffd", "\x00\x1b[2J"]
    assert "They were read as U+FFFD" in result.stderr


def test_a_program_can_wait_for_each_reply_and_close_its_end(chat_run: Path) -> None:
    with start(str(chat_run)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for message, reply in (("My name is Ben.", "Hello Ben!"), ("What is my name?", "You are Ben.")):
            process.stdin.write(f"{message}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == f"{reply}\n".encode()
        process.stdout.close()
        process.stdin.write(b"Hello!\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_closed_standard_input_is_an_error(chat_run: Path) -> None:
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", forked_python(), "-m", "regard", "chat", str(chat_run)]
    process = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr == "regard: error: standard input is closed; redirect a file\n"


def test_without_a_run_replies_are_retrieved(knowledge: str) -> None:
    with pseudo_terminal("chat", "--retrieve", knowledge) as terminal:
        assert "retrieves replies" in terminal.read_until("you> ")
        first, *beside = terminal.ask("when do you close").splitlines()
        assert first == "bot> We close at six."
        assert [line.split("  ")[1:] for line in beside] == [
            ["We close at six.", "to: When do you close?"],
            ["We open at nine.", "to: When do you open?"],
        ]
        assert terminal.ask("/retry").startswith("bot> We open at nine.\n")
        assert "no other reply" in terminal.ask("/retry")
        assert "options have no" in terminal.ask("/beam 2")
        assert "nothing attends" in terminal.ask("/why")


def test_a_reverse_model_reranks_replies(chat_run: Path, tmp_path: Path) -> None:
    reverse = str(train_chatbot(tmp_path / "reverse", steps=0, more=("data.reverse=true",)))
    flags = ["--rerank", reverse, "--candidates", "4", "--json"]
    weighted = [run(str(chat_run), *flags, "--rerank-weight", weight, text="Hello!\n") for weight in ("0", "0.5")]
    replies = [json.loads(line)["reply"] for line in weighted]
    assert replies[0]["text"] == "Hello, who are you?"
    assert replies[0]["score"] == pytest.approx(replies[0]["logprob"])
    assert replies[1]["score"] < 0.5 * replies[1]["logprob"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no RUN; name a knowledge base with --retrieve"),
        (["RUN", "--rerank", "RUN"], "name one that was trained with data.reverse = true"),
        (["--retrieve", "KNOWLEDGE", "--rerank", "RUN"], "--rerank chooses among replies that a run writes"),
        (["--retrieve", "KNOWLEDGE", "--beam", "3"], "beam has no effect on replies that are retrieved"),
        (["--retrieve", "KNOWLEDGE", "--why"], "--why needs a run whose model has attention"),
        (["DEAF", "--why"], "--why needs a run whose model has attention"),
        (["RUN", "--beam", "2", "--temperature", "2"], "beam needs beam search, but temperature needs sampling"),
        (["RUN", "--nbest", "9"], "cannot give 9 outputs"),
    ],
)
def test_what_cannot_be_is_an_error(
    chat_run: Path, tmp_path: Path, knowledge: str, arguments: list[str], message: str
) -> None:
    names = {"RUN": str(chat_run), "KNOWLEDGE": knowledge, "DEAF": str(tmp_path / "deaf")}
    if "DEAF" in arguments:
        train_chatbot(tmp_path / "deaf", "sutskever", steps=0)
    with pytest.raises(ValueError, match=message):
        run(*(names.get(argument, argument) for argument in arguments), text="Hello!\n")


def test_the_help_page_opens_with_lines_to_paste() -> None:
    environment = {**os.environ, "COLUMNS": "100"}
    command = [forked_python(), "-m", "regard", "chat", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert "regard chat runs/smalltalk --temperature 0.7 --seed 3" in shown
    assert "--rerank-weight" in shown
