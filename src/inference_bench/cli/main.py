"""The command line: one subcommand a question.

In:   arguments
Out:  text or JSON on stdout, progress and errors on stderr, an exit code: 0 done, 1 the answer is no, 2 a mistake in
      the request, 3 the world failed, 130 interrupted
Leaves out: arithmetic; each command makes one library call and hands the result to a report
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from inference_bench import __version__
from inference_bench.cli.check_options import add_check_options
from inference_bench.cli.compare_options import add_compare_options
from inference_bench.cli.conform_options import add_conform_options
from inference_bench.cli.convert_options import add_convert_options
from inference_bench.cli.drill_options import add_drill_options
from inference_bench.cli.given import refuse_empty_texts
from inference_bench.cli.lab_options import add_lab_options
from inference_bench.cli.ledger_options import add_ledger_options
from inference_bench.cli.load_options import add_load_options
from inference_bench.cli.manifest_options import add_manifest_options
from inference_bench.cli.output import one_line, without_overlong
from inference_bench.cli.plan_options import ENGINE_HELP, MEASURED_HELP, PROFILE_HELP, add_plan_options
from inference_bench.cli.score_options import add_score_options
from inference_bench.cli.serve_options import add_serve_options
from inference_bench.cli.shadow_options import add_shadow_options, add_suite_options
from inference_bench.cli.show_options import add_show_options
from inference_bench.cli.simulate_options import add_capacity_options, add_simulate_options
from inference_bench.cli.verify_options import add_verify_options
from inference_bench.cli.watch_options import add_watch_options
from inference_bench.errors import InferenceBenchError
from inference_bench.files import shown_name

INTERRUPTED: Final = 130
WORLD_FAILED: Final = 3
_MEASURING: Final = ("probe", "verify", "load", "shadow")

Command = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """argparse with errors on one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the request, where to read more, and exit 2."""
        said = one_line(without_overlong(f"{self.prog}: {message}"))
        self.exit(2, f"{said} (try {self.prog} --help)\n")


def build_parser() -> Parser:
    """The whole command line; each command's code is imported only when it runs."""
    parser = Parser(
        prog="inference-bench",
        description="Does it fit, how fast could it be, what does the real server do, and where is the gap.",
        epilog="Exit codes: 0 done, 1 the answer is no, 2 a mistake in the request, 3 the world failed.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for add in (
        _add_fit,
        _add_explain,
        _add_roofline,
        _add_plan,
        _add_simulate,
        _add_capacity,
        _add_score,
        _add_tables,
        _add_probe,
        _add_verify,
        _add_load,
        _add_check,
        _add_conform,
        _add_serve,
        _add_convert,
        _add_report,
        _add_compare,
        _add_shadow,
        _add_suite,
        _add_lab,
        _add_ledger,
        _add_drill,
        _add_manifest,
        _add_watch,
        _add_page,
    ):
        add(commands)
    return parser


Commands = argparse._SubParsersAction  # the type add_subparsers returns; argparse gives it no public name


def _parser(commands: Commands[Parser], name: str, summary: str) -> Parser:
    return commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def _command(commands: Commands[Parser], name: str, summary: str, module: str) -> Parser:
    parser = _parser(commands, name, summary)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(module=module)
    return parser


def _add_model_options(parser: Parser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a known name, a path to a config.json, model folder, .gguf or .safetensors, or a hub id",
    )
    parser.add_argument(
        "--weights", metavar="FMT", help="weight format, such as bf16, fp8, int4-g128; default: the file's own"
    )
    parser.add_argument(
        "--kv", metavar="FMT", help="cache format, such as fp16, q8_0, or KEYS/VALUES apart; default fp16"
    )
    parser.add_argument(
        "--compute", metavar="FMT", help="compute format whose peak is used; default: what the weights allow"
    )


def _add_fit(commands: Commands[Parser]) -> None:
    parser = _command(commands, "fit", "does it fit, how fast could it be, what would the usual formula say", "fit")
    _add_model_options(parser)
    parser.add_argument(
        "--on", metavar="HW", help="a known machine, 'here', a TOML or JSON file, or 'all' to rank every one"
    )
    parser.add_argument("--context", metavar="N", help="tokens a sequence, such as 32k (32768); default 4096")
    parser.add_argument("--sequences", metavar="B", default="1", help="sequences at once; default 1")
    parser.add_argument("--engine", metavar="NAME", default="none", help=f"{ENGINE_HELP}; default none")
    parser.add_argument("--measured", metavar="FILE", help=MEASURED_HELP)
    parser.add_argument("--profile", metavar="FILE", help=PROFILE_HELP)
    parser.add_argument("--overhead", metavar="BYTES", help="memory the runtime takes, such as 1GiB; default 2.5GB")
    parser.add_argument(
        "--devices", metavar="N", default="1", help="how many of the machine share the model; default 1"
    )
    parser.add_argument(
        "--split", choices=("tensor", "pipeline"), default="tensor", help="how they share it; default tensor"
    )
    parser.add_argument("--suggest", action="store_true", help="list formats and contexts that fit, best first")
    parser.add_argument(
        "--expert-correlation",
        metavar="C",
        default="0",
        help="how alike tokens choose experts, 0 to 1; default 0, uniform",
    )


def _add_explain(commands: Commands[Parser]) -> None:
    parser = _command(commands, "explain", "which rule produced a published memory figure", "explain")
    parser.add_argument("model", metavar="MODEL", help="a known name, or a path, or a Hugging Face id")
    parser.add_argument("figure", metavar="FIGURE", help="the figure as printed, such as 15.5GiB")
    parser.add_argument("--context", metavar="N", help="tokens the figure is for; default 4096")
    parser.add_argument("--sequences", metavar="B", default="1", help="sequences the figure is for; default 1")
    parser.add_argument("--weights", metavar="FMT", help="weight format; default: the model's own")
    parser.add_argument("--kv", metavar="FMT", help="cache format; default fp16")


def _add_roofline(commands: Commands[Parser]) -> None:
    parser = _command(commands, "roofline", "where each phase and operation sits on a machine's roofline", "roofline")
    _add_model_options(parser)
    parser.add_argument("--on", metavar="HW", required=True, help="a known machine, 'here', or a TOML or JSON file")
    parser.add_argument(
        "--context", metavar="N", default="4096", help="tokens each decoding sequence attends; default 4096"
    )
    parser.add_argument("--batch", metavar="B", default="1", help="sequences decoding together; default 1")
    parser.add_argument("--prompt", metavar="T", help="tokens of the prompt in prefill; default: the context")
    parser.add_argument(
        "--chunk",
        metavar="N",
        help="add a step in which the batch decodes and the prompt's last N tokens are prefilled",
    )
    parser.add_argument(
        "--devices", metavar="N", default="1", help="how many of the machine share each layer; default 1"
    )
    parser.add_argument(
        "--chart", metavar="FILE", help="draw the roof and its points: .svg, .html or .json (Vega-Lite)"
    )
    parser.add_argument("--batch-chart", metavar="FILE", help="draw decode tokens/s over batch, with its limit")


def _add_plan(commands: Commands[Parser]) -> None:
    summary = "how many users within the objectives, on how many machines, at what cost"
    add_plan_options(_command(commands, "plan", summary, "plan"))


def _add_simulate(commands: Commands[Parser]) -> None:
    parser = _command(commands, "simulate", "what a scheduler would do, step by step", "simulate")
    add_simulate_options(parser)


def _add_capacity(commands: Commands[Parser]) -> None:
    parser = _command(commands, "capacity", "the highest rate within latency objectives, simulated", "capacity")
    add_capacity_options(parser)


def _add_score(commands: Commands[Parser]) -> None:
    add_score_options(
        _command(commands, "score", "how right the predictions are against published measurements", "score")
    )


def _add_tables(commands: Commands[Parser]) -> None:
    for name, summary in (
        ("models", "which models are known, from where, as of when"),
        ("hardware", "which machines are known, from where, as of when"),
        ("formats", "which number formats are known, to the exact bit"),
    ):
        parser = _command(commands, name, summary, "tables")
        parser.add_argument("name", metavar="NAME", nargs="?", help="only this one")
        if name == "models":
            parser.add_argument(
                "--naive-error",
                action="store_true",
                help="what the usual cache formula says, what is true, by how much",
            )
            parser.add_argument("--refresh", metavar="ID", help="read a model's config from the Hugging Face hub now")


def _add_probe(commands: Commands[Parser]) -> None:
    parser = _command(
        commands, "probe", "measure this machine's own ceilings: bandwidth and matrix-product rate", "probe"
    )
    parser.add_argument("--budget", metavar="TIME", default="25s", help="about how long it may take; default 25s")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="what is measured; default auto: an NVIDIA card that PyTorch can use, else the processor",
    )


def _add_verify(commands: Commands[Parser]) -> None:
    add_verify_options(
        _command(
            commands,
            "verify",
            "measure a real server against ceilings, fit it, predict a load and run it; with no URL, the embedded engine",
            "verify",
        )
    )


def _add_load(commands: Commands[Parser]) -> None:
    add_load_options(
        _command(commands, "load", "what a server delivers at fixed concurrency, at a rate, or to a trace", "load")
    )


def _add_check(commands: Commands[Parser]) -> None:
    summary = "what a server does with each part of a request, exercised and not assumed"
    add_check_options(_command(commands, "check", summary, "check"))


def _add_conform(commands: Commands[Parser]) -> None:
    add_conform_options(_command(commands, "conform", "which load generators say what really happened", "conform"))


def _add_convert(commands: Commands[Parser]) -> None:
    summary = "write a model file in another number format, or as a folder for other engines"
    add_convert_options(_command(commands, "convert", summary, "convert"))


def _add_report(commands: Commands[Parser]) -> None:
    add_show_options(_command(commands, "report", "look again at a run folder", "show_report"))


def _add_compare(commands: Commands[Parser]) -> None:
    summary = "what changed between two runs of the same work, and may the second take over"
    add_compare_options(_command(commands, "compare", summary, "compare_runs"))


def _add_shadow(commands: Commands[Parser]) -> None:
    add_shadow_options(_command(commands, "shadow", "replay recorded arrivals against a second server", "shadow"))


def _add_suite(commands: Commands[Parser]) -> None:
    add_suite_options(_command(commands, "suite", "does a server give the answers that are expected of it", "suite"))


def _add_lab(commands: Commands[Parser]) -> None:
    summary = "experiments on a real model, each with the check that would catch it being wrong"
    add_lab_options(_parser(commands, "lab", summary), _command)


def _add_manifest(commands: Commands[Parser]) -> None:
    summary = "what exactly is served, by hash, and whether it still is"
    add_manifest_options(_parser(commands, "manifest", summary), _command)


def _add_drill(commands: Commands[Parser]) -> None:
    summary = "do the failure paths work: servers are broken on purpose, and every request is accounted for"
    add_drill_options(_command(commands, "drill", summary, "drill"))


def _add_serve(commands: Commands[Parser]) -> None:
    add_serve_options(_command(commands, "serve", "start an engine on the loopback interface, until Ctrl-C", "serve"))


def _add_ledger(commands: Commands[Parser]) -> None:
    summary = "what was paid for, computed, completed and of use, by application; failed attempts included"
    add_ledger_options(_command(commands, "ledger", summary, "ledger"))


def _add_watch(commands: Commands[Parser]) -> None:
    summary = "which servers are alive, which are ready, which have room: once, or again and again"
    add_watch_options(_command(commands, "watch", summary, "watch"))


def _add_page(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "page", help="the calculator in a browser: build it, or look at it", description="The calculator in a browser."
    )
    inner = parser.add_subparsers(dest="page_command", required=True, metavar="COMMAND", parser_class=Parser)
    build = _command(inner, "build", "build the page as a folder for any static host", "page")
    serve = _command(
        inner, "serve", "serve the page on the loopback interface; it is built first where it is not", "page"
    )
    for each in (build, serve):
        each.add_argument("--out", metavar="DIR", default="page", help="the folder of the page; default page")
    serve.add_argument("--port", metavar="N", default="0", help="the port; default 0, a free one")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the only place that turns errors into exit codes."""
    _prepare_streams()
    namespace = argparse.Namespace(command="")
    try:
        namespace = build_parser().parse_args(arguments)
        namespace.typed = tuple(sys.argv[1:] if arguments is None else arguments)
        refuse_empty_texts(namespace)
        return _run(namespace)
    except InferenceBenchError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain(
            "interrupted; what was already measured is kept" if namespace.command in _MEASURING else "interrupted"
        )
        return INTERRUPTED
    except BrokenPipeError:
        # the reader closed the pipe; send what Python would still flush into nothing, so that it does not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return WORLD_FAILED
    except OSError as error:
        _complain(f"{error.strerror or error}{f': {shown_name(str(error.filename))}' if error.filename else ''}")
        return WORLD_FAILED
    except Exception as error:  # a mistake in this program: still one line, and still an exit code
        _complain(
            f"internal error ({type(error).__name__}: {' '.join(str(error).split())[:200]}); "
            "please report it with the command that led to it"
        )
        return WORLD_FAILED


def _complain(message: str) -> None:
    """One line on stderr; what a file or an argument said in it cannot move the cursor or turn the text around."""
    print(f"inference-bench: {one_line(without_overlong(message))}", file=sys.stderr)


def _prepare_streams() -> None:
    """What a terminal cannot show is printed as escapes; what goes to a stream that the caller closed goes nowhere."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not one that a caller put in its place, and not one that is closed
            stream.reconfigure(errors="backslashreplace")


def _run(namespace: argparse.Namespace) -> int:
    from importlib import import_module

    command: Command = import_module(f"inference_bench.cli.{namespace.module}").run
    code = command(namespace)
    sys.stdout.flush()
    return code


def entry_point() -> NoReturn:
    """What the installed command runs."""
    _hear_a_polite_kill()
    sys.exit(main())


def _hear_a_polite_kill() -> None:
    """Let SIGTERM do what Ctrl-C does: what was measured is written and said, and no process that was started stays."""
    import signal

    def interrupt(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)
