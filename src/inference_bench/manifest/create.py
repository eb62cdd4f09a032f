"""What is served, from everything that a person can point at: files, a running server, a system prompt, adapters, flags.

In:   Sources
Out:  Manifest; or what was found, to be compared with one
Leaves out: comparing (check), run folders (run)
Read next by: check, run, cli.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from inference_bench.engines.answers import Asker
from inference_bench.engines.base import FlagValue
from inference_bench.engines.model_files import list_model_files
from inference_bench.errors import RequestError
from inference_bench.files import open_regular, shown_name
from inference_bench.manifest.adapters import components_of_adapter
from inference_bench.manifest.components import Component, Group, Manifest, merged
from inference_bench.manifest.conversation import ids_of_files
from inference_bench.manifest.folder import list_files
from inference_bench.manifest.from_files import A_FILE, Described, describe_files
from inference_bench.manifest.from_server import ask_what_is_served, of_system_prompt
from inference_bench.manifest.hashing import Progress
from inference_bench.manifest.known_hashes import keep_hashes
from inference_bench.measure.target import ApiKey, Target
from inference_bench.units import MEBI, format_bytes

ASK_S: Final = 10.0
_SCHEMES: Final = ("http://", "https://")
_MAX_PROMPT_BYTES: Final = 16 * MEBI
AT_ITS_PATH: Final = "the file at the path that the server names"
_STATED: Final = "stated by whoever made the manifest"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look.

    Where:    places are paths of models and addresses of servers; flags are what an engine was started with, as a person states it;
              of a system prompt only hash and length are kept
    """

    places: tuple[str, ...]
    system_prompt: Path | None = None
    adapters: tuple[Path, ...] = ()
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    api_key: ApiKey | None = None
    timeout_s: float = ASK_S


def is_address(place: str) -> bool:
    """Whether a place is a server's address and not a path."""
    return place.casefold().startswith(_SCHEMES)


def create_manifest(sources: Sources, progress: Progress | None = None) -> Manifest:
    """One manifest of all that the sources say.

    Raises:   RequestError for sources that are none, are broken, or contradict each other; ServerError where nothing answers
    """
    return Manifest(find_components(sources, progress).components)


def find_components(sources: Sources, progress: Progress | None = None) -> Described:
    """All that the sources say, and of which groups they would have said everything.

    Where:    files are asked before servers, so that of a thing that both know, the files are named
    Raises:   see create_manifest
    """
    if not sources.places:
        raise RequestError(
            "a manifest is of something: name a model's folder, a .gguf file, or the address of a server"
        )
    found = list(_places(sources, progress or (lambda _text: None)))
    if sources.system_prompt is not None:
        found.append(Described((of_system_prompt(_prompt(sources.system_prompt), "a file that was named"),)))
    found += [Described(tuple(components_of_adapter(path, progress))) for path in sources.adapters]
    stated = (
        Component(Group.FLAG, name, _STATED, value=value) for name, value in sources.flags.items() if value is not None
    )
    found.append(Described(tuple(stated)))
    return Described(merged(each.components for each in found), frozenset().union(*(each.complete for each in found)))


def _places(sources: Sources, say: Progress) -> Iterator[Described]:
    """Files first; what of them a server here says it serves is not read a second time."""
    read: dict[Path, Described] = {}
    for place in (each for each in sources.places if not is_address(each)):
        found = read[Path(place).resolve()] = described_path(Path(place), say)
        yield found
    for place in filter(is_address, sources.places):
        target = Target(place, api_key=sources.api_key)
        say(f"asking {target.address} what it serves")

        def files_at(path: Path) -> Described:
            return read.get(path.resolve()) or describe_and_remember(path, say)

        yield described_server(Asker(target, sources.timeout_s), files_at)


def described_path(path: Path, say: Progress) -> Described:
    """A model's files, and its conversations as token ids."""
    found = describe_and_remember(path, say)
    say("rendering the conversations")
    return Described((*found.components, *ids_of_files(path)), found.complete)


def describe_and_remember(
    path: Path, progress: Progress | None = None, known: Mapping[str, str] | None = None
) -> Described:
    """The files of a model, whose hashes are kept for a load test that must not read them (known_hashes).

    Raises:   see describe_files
    """
    found = describe_files(path, progress, known)
    hashed = {each.name: each.sha256 for each in found.components if each.source == A_FILE and each.sha256}
    keep_hashes(list_files(path), hashed)
    return found


def described_server(ask: Asker, read_files: Callable[[Path], Described | None]) -> Described:
    """What a server says, and its files where they are on this machine and it says where.

    Where:    read_files is how they are read; None where they are not
    Raises:   ServerError
    """
    found, identity = ask_what_is_served(ask)
    path = local_path(ask.target, identity.model_path)
    files = None if path is None else read_files(path)
    if files is None:
        return found
    return Described(merged_files(found.components, files.components), found.complete | files.complete)


def merged_files(said: Sequence[Component], files: Sequence[Component]) -> tuple[Component, ...]:
    """What the files say beside what their server says: where they contradict each other the server's word is kept.

    Where:    a file may have been replaced since it was loaded, and a flag may have set another template
    """
    told = {each.key for each in said}
    there = (replace(each, source=AT_ITS_PATH) if each.source == A_FILE else each for each in files)
    return (*said, *(each for each in there if each.key not in told))


def local_path(target: Target, path: str | None) -> Path | None:
    """Where the model of a server lies on this machine; None where that is not known to be."""
    if path is None or not target.address.is_this_machine or not Path(path).is_absolute():
        return None
    return Path(path) if list_model_files(Path(path)) else None


def _prompt(path: Path) -> bytes:
    """The bytes of a system prompt, which go into a hash and nowhere else.

    Raises:   RequestError
    """
    try:
        with open_regular(path) as file:
            content = file.read(_MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"the system prompt {shown_name(path)} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    if not content:
        raise RequestError(f"the system prompt {shown_name(path)} is empty; leave it out where there is none")
    if len(content) > _MAX_PROMPT_BYTES:
        raise RequestError(
            f"the system prompt {shown_name(path)} has more than {format_bytes(_MAX_PROMPT_BYTES)}; no model reads that"
        )
    return content
