"""A conversation in a terminal: prompt, replies that appear while they are generated, and commands."""

import os
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from regard.cli.chat_view import BOT, YOU, columns, describe_attention, describe_retrieved, fit
from regard.options import ChatOptions, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from regard.predict import Conversation, Exchange

COMMANDS = {
    "help": ("", "show this list"),
    "history": ("", "show the conversation"),
    "undo": ("", "remove the last message and its reply"),
    "retry": ("", "give another reply to the last message"),
    "why": ("", "show which turns and words the last reply attends to"),
    "set": ("[NAME=VALUE]", "change an option; alone, list all options"),
    "save": ("FILE", "append the conversation to a .jsonl file to train on"),
    "reset": ("", "begin a new conversation"),
    "quit": ("", "end, like Ctrl-D"),
}
"""What each command takes, and what it does."""
OPTIONS = {declared.name: declared for declared in ChatOptions.declared()}
BOLD, DIM, BLUE, GREEN = "1", "2", "1;34", "1;32"
LONGEST_SHOWN = 1000  # characters of a turn that the history shows
TOLD_TWICE = "Ctrl-D or /quit ends the conversation"


def talk(conversation: "Conversation", name: str, why: bool) -> None:
    """Talk until the user ends the conversation.

    Args:
        conversation: The conversation.
        name: What the user talks to.
        why: Show what each reply attends to.
    """
    terminal = Terminal()
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # a user may type bytes that are no text
    if not terminal.is_unicode:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    session = Session(conversation, terminal, why)
    terminal.note(f"{name}: {session.describe()}. /help lists the commands, Ctrl-D ends.")
    interrupted = 0
    while not session.ended:
        try:
            line = terminal.read(YOU)
        except EOFError:
            terminal.line()
            return
        except KeyboardInterrupt:
            interrupted += 1
            terminal.line()
            if interrupted > 1:
                terminal.note(TOLD_TWICE)
            continue
        interrupted = 0
        session.handle(line)


class Terminal:
    """Writes to a terminal: text that cannot control it, and styles if it has any."""

    def __init__(self) -> None:
        """Find out what the terminal can do."""
        self.has_output = sys.stdout.isatty()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        self.styled = self.has_output and not plain
        self.is_unicode = sys.stdout.encoding.lower().startswith("utf")
        self.marks = ("", "")  # around what has no columns on the screen
        with suppress(ImportError):  # not every system has readline
            _set_up_readline()
            self.marks = ("\1", "\2")

    def read(self, speaker: str) -> str:
        """Return a line that the user writes.

        Raises:
            EOFError: There are no more lines.
        """
        prompt = f"{speaker}> "
        if self.has_output:
            begin, end = self.marks
            return input(f"{begin}\x1b[{BLUE}m{end}{prompt}{begin}\x1b[0m{end}" if self.styled else prompt)
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    def write(self, text: str) -> None:
        """Write a piece of a reply at once, with its control characters escaped."""
        from regard.text import printable

        print(printable(text), end="", flush=True)

    def speaker(self, name: str, style: str, mark: str = "> ") -> None:
        """Write who speaks, unless the replies go to a file."""
        if self.has_output:
            print(self._styled(f"{name}{mark}", style), end="", flush=True)

    def line(self) -> None:
        """End a line."""
        print(flush=True)

    def clear_line(self) -> None:
        """Remove the name of a speaker who says nothing."""
        if self.styled:
            print("\r\x1b[K", end="", flush=True)
        elif self.has_output:
            self.line()

    def note(self, text: str) -> None:
        """Write a text that is no part of a reply, on as many lines as the terminal needs."""
        from textwrap import wrap

        from regard.text import printable

        text = printable(text)
        for line in wrap(text, columns(), subsequent_indent=" " * (len(text) - len(text.lstrip()))):
            print(self._styled(line, DIM), file=sys.stdout if self.has_output else sys.stderr, flush=True)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.styled else text


class Session:
    """Handles what the user writes: sends messages, and runs commands."""

    def __init__(self, conversation: "Conversation", terminal: Terminal, why: bool) -> None:
        """Begin with a conversation.

        Args:
            conversation: The conversation.
            terminal: Where replies and notes are written.
            why: Show what each reply attends to.
        """
        self.conversation, self.terminal, self.why = conversation, terminal, why
        self.ended = False

    def handle(self, line: str) -> None:
        """Send a message, or run a command; errors and Ctrl-C end only this message or command."""
        text = line.strip()
        kept = self.conversation.exchanges
        try:
            if text.startswith("/") and not text.startswith("//"):
                self._run(text[1:])
            elif text:
                self._send(text[text.startswith("//") :])
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            is_partial = self.conversation.exchanges is not kept
            self.terminal.note("stopped; the reply ends here" if is_partial else "stopped; nothing has changed")
        except (ValueError, OSError, MemoryError, RuntimeError) as error:
            message = error.spelled(_spell_command) if isinstance(error, OptionError) else str(error)
            self.terminal.note(message or type(error).__name__)

    def describe(self) -> str:
        """Return what the replies come from, in words."""
        chatbot, options = self.conversation.chatbot, self.conversation.options
        if chatbot is None:
            return "retrieves replies"
        parameters = sum(parameter.numel() for parameter in chatbot.model.parameters())
        turns = options.turns or chatbot.turns
        read = "reads the last turn" if turns == 1 else f"reads the last {turns} turns"
        return f"{parameters:,} parameters, {read}, {self._describe_search()}"

    def _describe_search(self) -> str:
        """Return how replies are found, in words."""
        options = self.conversation.options
        if options.sample:
            return f"samples with temperature {options.temperature:g}"
        return "searches greedily" if options.beam == 1 else f"searches with beam {options.beam}"

    def _send(self, message: str) -> None:
        """Send a message and show the reply."""
        if unread := self.conversation.unread_tokens(message):
            self.terminal.note(
                f"the message is too long for the model, which does not read its first {unread:,} tokens"
            )
        self._show_reply(lambda emit: self.conversation.send(message, emit))

    def _show_reply(self, find: "Callable[[Callable[[str], None]], Exchange]") -> None:
        """Show a reply while it is found, and what belongs to it."""
        self.terminal.speaker(BOT, GREEN)
        try:
            exchange = find(self.terminal.write)
        except (ValueError, MemoryError, RuntimeError):
            self.terminal.clear_line()
            raise
        except KeyboardInterrupt:
            self.terminal.line()
            raise
        self.terminal.line()
        if not exchange.text.strip():
            self.terminal.note("the reply is empty")
        others = exchange.reply.nbest[1:] if exchange.reply is not None else ()
        lines = [f"{number}. {reply.text}" for number, reply in enumerate(others, start=2)]
        lines += describe_retrieved(exchange, columns())
        if self.why and exchange.text.strip():
            lines += describe_attention(self.conversation, columns(), self.terminal.is_unicode)
        self._show(lines)

    def _show(self, lines: "Iterable[str]") -> None:
        for line in lines:
            self.terminal.note(line)

    def _run(self, text: str) -> None:
        """Run a command."""
        name, _, argument = text.partition(" ")
        argument = argument.strip()
        match name.lower():
            case "help":
                self._show(_help(columns()))
            case "history":
                self._show_history()
            case "undo":
                removed = self.conversation.undo()
                self.terminal.note(f"removed: {fit(removed.message, columns() - 9)}")
            case "retry":
                self._show_reply(self.conversation.retry)
            case "why":
                self._show(describe_attention(self.conversation, columns(), self.terminal.is_unicode))
            case "set":
                self._set(*(part.strip() for part in argument.partition("=")[::2]))
            case "save":
                self._save(argument)
            case "reset":
                self.conversation.reset()
                self.terminal.note("a new conversation")
            case "quit":
                self.ended = True
            case option if option.replace("-", "_") in OPTIONS:
                self._set(option, argument.removeprefix("=").strip())
            case unknown:
                known = [*COMMANDS, *map(_spell, OPTIONS)]
                similar = [name for name in known if name.startswith(unknown)] or get_close_matches(unknown, known)
                hint = f"did you mean /{similar[0]}?" if similar else "/help lists the commands."
                self.terminal.note(f"there is no command /{unknown}; {hint} //{text} sends it as a message")

    def _show_history(self) -> None:
        """Show the conversation."""
        if not self.conversation.exchanges:
            self.terminal.note("nothing has been said yet")
        for exchange in self.conversation.exchanges:
            for speaker, style, text in ((YOU, BLUE, exchange.message), (BOT, GREEN, exchange.text)):
                cut = f"… ({len(text):,} characters)" if len(text) > LONGEST_SHOWN else ""
                self.terminal.speaker(speaker, style, mark="  ")
                self.terminal.write(text[:LONGEST_SHOWN] + cut)
                self.terminal.line()

    def _set(self, name: str, value: str) -> None:
        """Change an option, or show its value."""
        if not name:
            rows = [(_spell(option), self._value(option)) for option in OPTIONS]
            self._show(fit(f"{option:16}  {value}", columns()) for option, value in rows)
            return
        before, known = self.conversation.options, name.replace("-", "_")
        if value or known not in OPTIONS:  # an error names a similar option
            self.conversation.set(known, value)
        is_other = self.conversation.options.sample != before.sample
        other = f"; now the model {self._describe_search()}" if is_other else ""
        self.terminal.note(f"{_spell(known)} is {self._value(known)}{other}")

    def _value(self, name: str) -> str:
        """Return the value of an option, in words."""
        value, chatbot = getattr(self.conversation.options, name), self.conversation.chatbot
        if name == "turns" and value is None and chatbot is not None:
            return f"{chatbot.turns}, as in training"
        if isinstance(value, bool) or value in (None, ()):
            return "on" if value else "off"
        return " ".join(map(repr, value)) if isinstance(value, tuple) else str(value)

    def _save(self, path: str) -> None:
        """Append the conversation to a file."""
        if not path:
            raise ValueError("name a file, as in /save talk.jsonl")
        self.conversation.save(path)
        self.terminal.note(f"appended {2 * len(self.conversation.exchanges)} turns to {path}")


def _help(width: int) -> "Iterable[str]":
    """Yield the lines of the list of commands."""
    rows = [(f"/{name} {argument}".rstrip(), text) for name, (argument, text) in COMMANDS.items()]
    rows += [("/turns N", "how many turns the model reads; `default` is as in training")]
    rows += [("/NAME VALUE", "change any option: /beam 1, /temperature 0.7, /seed 3")]
    rows += [("//TEXT", "send a message that begins with /")]
    rows += [("Ctrl-C", "stop a reply, or clear the line")]
    longest, needed = (max(len(row[column]) for row in rows) for column in (0, 1))
    for command, text in rows:
        yield from (f"{command:{longest}}  {text}",) if width >= longest + 2 + needed else (command, f"  {text}")


def _spell(name: str) -> str:
    """Return the name of an option as it is written in a command."""
    return name.replace("_", "-")


def _spell_command(name: str, value: str) -> str:
    """Return how an option is given as a command, for `OptionError.spelled`."""
    return f"/{_spell(name)} {value}".rstrip()


def _set_up_readline() -> None:
    """Let readline edit lines, remember them until the end, and complete commands with the tab key."""
    import readline

    names = [f"/{name}" for name in (*COMMANDS, *map(_spell, OPTIONS))]

    def complete(text: str, state: int) -> str | None:
        matches = [name for name in names if text and name.startswith(text)]
        return matches[state] if state < len(matches) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    if "libedit" in (readline.__doc__ or ""):
        readline.parse_and_bind("bind ^I rl_complete")
        return
    # In a locale without UTF-8, readline would take other letters for commands.
    for command in ("tab: complete", "set input-meta on", "set output-meta on", "set convert-meta off"):
        readline.parse_and_bind(command)
