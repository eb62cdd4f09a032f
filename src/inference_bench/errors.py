"""The errors this package raises, in one tree.

InferenceBenchError
 ├─ RequestError                     the question was wrong                        exit 2
 │   ├─ UnknownNameError             no such model, machine or format (LookupError)
 │   ├─ ModelConfigError             a config.json that cannot be counted (ValueError)
 │   ├─ ModelFileError               a GGUF or safetensors file that is broken or lies (ValueError)
 │   ├─ HardwareFileError            a machine description that cannot be used (ValueError)
 │   ├─ ScenarioError                a plan's scenario that lacks, contradicts or misspells something (ValueError)
 │   ├─ MeasurementTableError        a table of published measurements that cannot be read as one (ValueError)
 │   ├─ TraceError                   a recorded trace that cannot be read as one (ValueError)
 │   ├─ QuantityError                text that is not a number with a known unit (ValueError)
 │   ├─ TooFewSamplesError           a statistic asked of too few values (ValueError)
 │   ├─ RunFolderError               not a run folder, or one that cannot be read (ValueError)
 │   └─ MissingExtraError            an optional package is not installed (ImportError)
 └─ WorldError                       the question was fine; the world failed       exit 3
     ├─ DownloadError                a file could not be fetched, or is not the one that was asked for
     ├─ MeasurementError             a measurement produced nothing usable
     ├─ StorageError                 results could not be written (disk full, no permission)
     └─ ServerError                  a model server could not be reached or did not behave
         ├─ ServerStartError         a server process ended, or never became ready
         └─ StreamError              a reply that is not the stream it claims to be

A message says what was asked, the value, what is allowed or nearest, and what to do about it.
Messages never name command-line flags: the command line catches the root once and prints one line.
"""


class InferenceBenchError(Exception):
    """Root of every error this package raises on purpose."""

    exit_code = 3


class RequestError(InferenceBenchError):
    """The question itself was wrong; asking again unchanged cannot work."""

    exit_code = 2


class UnknownNameError(RequestError, LookupError):
    """A model, machine or number format that is not in the tables."""


class ModelConfigError(RequestError, ValueError):
    """A config.json that lacks a field, contradicts itself, or describes a design not counted yet."""


class ModelFileError(RequestError, ValueError):
    """A model file whose header is broken, truncated, or claims what cannot be true."""


class HardwareFileError(RequestError, ValueError):
    """A machine description that lacks a field or holds an impossible value."""


class ScenarioError(RequestError, ValueError):
    """A scenario to plan for that lacks a value, contradicts itself, or holds one that cannot be."""


class MeasurementTableError(RequestError, ValueError):
    """A table of measurements with a column missing, a wrong unit, or a value that cannot be."""


class TraceError(RequestError, ValueError):
    """A recorded trace that is missing, broken, out of order, or in a form that is not known."""


class QuantityError(RequestError, ValueError):
    """Text that cannot be read as a number with a unit."""


class TooFewSamplesError(RequestError, ValueError):
    """A statistic was asked of fewer values than it needs."""


class RunFolderError(RequestError, ValueError):
    """A folder that does not hold a run this version can read."""


class MissingExtraError(RequestError, ImportError):
    """An optional package is needed; the message holds the command that installs it."""


class WorldError(InferenceBenchError):
    """The question was fine; something outside this program failed."""

    exit_code = 3


class DownloadError(WorldError):
    """A file could not be fetched, or what came is not what was asked for."""


class MeasurementError(WorldError):
    """A measurement produced nothing that can be used."""


class StorageError(WorldError):
    """Results could not be written."""


class ServerError(WorldError):
    """A model server could not be reached, or did not behave like one."""


class ServerStartError(ServerError):
    """A server process ended or never became ready."""


class StreamError(ServerError):
    """A reply that is not the event stream it claims to be."""
