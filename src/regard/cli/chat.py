"""`regard chat`: talk to a trained chatbot, or to a knowledge base."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.flags import Device, given, with_options
from regard.cli.streams import print_line, read_blocks
from regard.options import ChatOptions, OptionError
from regard.options.decoding import MACHINE, OUTPUT

if TYPE_CHECKING:
    from regard.predict import Chatbot, Conversation, Exchange

RETRIEVAL = "Retrieval"
Run = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Folder of a trained chatbot; not needed with --retrieve.")
]
Retrieve = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Knowledge base, whose best replies to each message are shown, too: a question, a tab and its reply on "
        "each line; or dialogues.",
        rich_help_panel=RETRIEVAL,
    ),
]
Method = Annotated[
    Literal["bm25", "dual", "both"] | None,
    typer.Option(
        help="Compare words (bm25), vectors of a dual encoder (dual), or both. A dual encoder is a RUN with "
        "chat.objective = 'retrieve'; default: both with one, bm25 without.",
        rich_help_panel=RETRIEVAL,
    ),
]
Top = Annotated[
    int, typer.Option(min=1, metavar="N", help="Number of replies to show from it.", rich_help_panel=RETRIEVAL)
]
Rerank = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help="Rerank replies by mutual information, with a run that was trained with data.reverse = true "
        "(Li et al. 2016).",
        rich_help_panel="Search",
    ),
]
Why = Annotated[
    bool,
    typer.Option("--why", help="Show which turns and words each reply attends to.", rich_help_panel=OUTPUT),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per reply.", rich_help_panel=OUTPUT)]
Precision = Annotated[
    str, typer.Option(help="Number format: auto, float32, bfloat16 or int8.", rich_help_panel=MACHINE)
]


@with_options(ChatOptions)
def chat(
    run: Run = None,
    *,
    why: Why = False,
    as_json: AsJson = False,
    retrieve: Retrieve = None,
    method: Method = None,
    top: Top = 3,
    rerank: Rerank = None,
    device: Device = "auto",
    precision: Precision = "auto",
    **options: Any,
) -> None:
    """Talk to a trained chatbot, which replies to the turns so far.

    \b
    regard chat runs/smalltalk
    regard chat runs/smalltalk --temperature 0.7 --seed 3
    regard chat runs/smalltalk --turns 1 < messages.txt
    regard chat runs/smalltalk --json --why < messages.txt
    regard chat runs/smalltalk --retrieve questions.tsv --top 3
    regard chat --retrieve questions.tsv

    In a terminal, /help lists the commands, such as /undo, /retry and /why.
    Ctrl-C stops a reply, Ctrl-D ends. Elsewhere, each line of stdin is a
    message, and its reply is a line of stdout; a blank line begins a new
    conversation.

    Replies are searched for with the beam of the recipe. With --beam 1 or an
    option of sampling, they are shown while they are generated.
    """
    from regard.predict import Conversation
    from regard.predict.chat_attention import has_attention
    from regard.tasks import load_retriever

    chatbot = _open_chatbot(run, retrieve, rerank, device, precision)
    encoder = run if chatbot is None else None
    retriever = None if retrieve is None else load_retriever(retrieve, encoder, method, device, precision)
    conversation = Conversation(chatbot, retriever, top, **given(options))
    if chatbot is None and (unused := list(given(options))):
        raise OptionError("{" + unused[0] + "} has no effect on replies that are retrieved; leave it out")
    if why and (chatbot is None or not has_attention(chatbot)):
        raise ValueError("--why needs a run whose model has attention; leave it out, or name another run")
    if sys.stdin.isatty() and not as_json:
        from regard.cli.chat_terminal import talk

        talk(conversation, run or str(retrieve), why)
    else:
        _answer_lines(conversation, as_json, why)


def _open_chatbot(
    run: str | None, retrieve: str | None, rerank: str | None, device: str, precision: str
) -> "Chatbot | None":
    """Return the chatbot that writes the replies; None if they are retrieved."""
    from regard.bundle import load_bundle_recipe
    from regard.run_path import find_run
    from regard.tasks import load_chatbot

    if run is None or load_bundle_recipe(find_run(run).folder).is_retrieval:
        if retrieve is None:
            subject = "there is no RUN" if run is None else f"{run} selects replies from a knowledge base"
            raise ValueError(
                f"{subject}; name a knowledge base with --retrieve FILE.tsv, which has a question, a tab and its reply "
                "on each line"
            )
        if rerank is not None:
            raise ValueError("--rerank chooses among replies that a run writes, but these are retrieved; leave it out")
        return None
    chatbot = load_chatbot(run, device, precision)
    if rerank is None:
        return chatbot
    if not load_bundle_recipe(find_run(rerank).folder).data.reverse:
        raise ValueError(
            f"--rerank {rerank}: this run predicts replies from histories; name one that was trained with "
            "data.reverse = true"
        )
    return chatbot.reranked_by(load_chatbot(rerank, device, precision))


def _answer_lines(conversation: "Conversation", as_json: bool, why: bool) -> None:
    """Reply to each line of stdin on stdout; a blank line begins a new conversation."""
    from regard.cli.chat_view import describe_attention, describe_retrieved
    from regard.text import printable, printable_json

    dialogue = 1
    for number, line in enumerate(line for lines in read_blocks("-") for line in lines):
        if not line.split():
            dialogue += bool(conversation.exchanges)
            conversation.reset()
            if not as_json:
                print_line("")
        else:
            if unread := conversation.unread_tokens(line):
                _note(f"line {number + 1} is too long for the model, which does not read its first {unread:,} tokens")
            exchange = conversation.send(line)
            if as_json:
                place = {"dialogue": dialogue, "turn": len(conversation.exchanges)}
                print_line(printable_json({**place, **_to_json(conversation, exchange, why)}))
            else:
                print_line(printable(exchange.text))
                for note in [*describe_retrieved(exchange), *(describe_attention(conversation) if why else [])]:
                    _note(note)
        sys.stdout.flush()  # who writes the lines may wait for each reply


def _to_json(conversation: "Conversation", exchange: "Exchange", why: bool) -> dict[str, Any]:
    """Return an exchange as a JSON object, with what the reply attends to if this is asked for."""
    table = exchange.to_json()
    if why:
        table["attention"] = conversation.attention().to_json() if exchange.text.strip() else None
    return table


def _note(text: str) -> None:
    print(f"regard: {text}", file=sys.stderr)
