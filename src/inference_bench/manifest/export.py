"""How do other programs read a manifest: as a bill of materials, or as a statement to be signed?

In:   Manifest
Out:  CycloneDX 1.6 JSON, checked against its schema; an in-toto statement around it
Leaves out: signing; a model card, which the library does not write
Read next by: cli.

The model is the subject: each file with its hash below it, the engine as an application, every other component as a property named
inference-bench:GROUP:NAME. Serial number and order follow from the digest, and there is no date: one manifest, one document.

Source: CycloneDX 1.6; in-toto attestation framework, Statement v1, and its predicate type for CycloneDX
"""

from __future__ import annotations

import json
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from inference_bench.errors import MissingExtraError, RequestError
from inference_bench.manifest.components import SERVED_NAME, Component, Group, Manifest

if TYPE_CHECKING:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component as Part

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://cyclonedx.org/bom"
_PREFIX: Final = "inference-bench"
_PART_OF: Final = ("GGUF key", "/")  # read out of a file, or out of an answer
_FILES: Final = (
    Group.WEIGHTS,
    Group.CONFIG,
    Group.TOKENIZER,
    Group.CODE,
    Group.OTHER,
    Group.ADAPTER,
    Group.CHAT_TEMPLATE,
)


class ExportFormat(StrEnum):
    """What a manifest can become."""

    CYCLONEDX = "cyclonedx"
    IN_TOTO = "in-toto"


def export_manifest(manifest: Manifest, form: ExportFormat) -> dict[str, Any]:
    """The manifest in another program's form.

    Raises:   MissingExtraError without the library; RequestError for a manifest of no file, which no statement can be about
    """
    return cyclonedx_of(manifest) if form is ExportFormat.CYCLONEDX else in_toto_of(manifest)


def cyclonedx_of(manifest: Manifest) -> dict[str, Any]:
    """A bill of materials of the model, checked against the standard's own schema.

    Raises:   MissingExtraError
    """
    try:
        from cyclonedx.output import make_outputter
        from cyclonedx.schema import OutputFormat, SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        raise _missing() from None
    text = make_outputter(_bom(manifest), OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    try:
        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    except ImportError:  # the library is there, and what it checks with is not
        raise _missing() from None
    if error is not None:
        raise RequestError(f"this manifest makes no valid bill of materials: {str(error)[:200]}")
    found: dict[str, Any] = json.loads(text)
    return found


def _missing() -> MissingExtraError:
    return MissingExtraError(
        "a bill of materials is written by cyclonedx-python-lib, which is not installed; install it with: "
        "pip install 'inference-bench[bom]'"
    )


def _bom(manifest: Manifest) -> Bom:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component as Part
    from cyclonedx.model.component import ComponentType

    digest = manifest.sha256
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, digest))
    bom.metadata.timestamp = None  # type: ignore[assignment]
    model = Part(
        name=_model_name(manifest),
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref="model",
        version=digest[:12],
        properties=_properties(manifest),
        components=[_file(each) for each in manifest.of(*_FILES) if each.sha256 is not None],
    )
    bom.metadata.component = model
    engine = _engine(manifest)
    if engine is not None:
        bom.components.add(engine)
    bom.register_dependency(model, [] if engine is None else [engine])
    return bom


def _model_name(manifest: Manifest) -> str:
    served = manifest.find(Group.MODEL, SERVED_NAME)
    weights = manifest.of(Group.WEIGHTS)
    return str(served.value) if served else weights[0].name if weights else "model"


def _file(component: Component) -> Part:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component as Part
    from cyclonedx.model.component import ComponentType

    size = [] if component.num_bytes is None else [Property(name=f"{_PREFIX}:bytes", value=str(component.num_bytes))]
    return Part(
        name=component.name,
        type=ComponentType.DATA
        if component.num_bytes is None or component.source.startswith(_PART_OF)
        else ComponentType.FILE,
        bom_ref=f"{component.group}/{component.name}",
        group=component.group.value,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=component.sha256 or "")],
        properties=size,
    )


def _engine(manifest: Manifest) -> Part | None:
    from cyclonedx.model.component import Component as Part
    from cyclonedx.model.component import ComponentType

    name, version = manifest.find(Group.ENGINE, "name"), manifest.find(Group.ENGINE, "version")
    if name is None:
        return None
    return Part(
        name=str(name.value),
        type=ComponentType.APPLICATION,
        bom_ref="engine",
        version=None if version is None else str(version.value),
    )


def _properties(manifest: Manifest) -> list[Any]:
    from cyclonedx.model import Property

    found = [Property(name=f"{_PREFIX}:manifest:sha256", value=manifest.sha256)]
    for each in manifest.components:
        name = f"{_PREFIX}:{each.group}:{each.name}"
        if each.value is not None:
            found.append(
                Property(name=name, value=json.dumps(each.value) if isinstance(each.value, bool) else str(each.value))
            )
        if each.sha256 is not None and each.group not in _FILES:
            found.append(Property(name=f"{name}:sha256", value=each.sha256))
    return found


def in_toto_of(manifest: Manifest) -> dict[str, Any]:
    """A statement about the files of a model, not signed, whose predicate is the bill of materials.

    Where:    the statement is four keys of the public specification; the library for it brings protobuf and checks nothing more
    Raises:   RequestError for a manifest without weights; see cyclonedx_of
    """
    subjects = [each for each in manifest.of(Group.WEIGHTS, Group.ADAPTER) if each.sha256 is not None]
    if not subjects:
        raise RequestError(
            "this manifest holds no hash of weights, so that a statement would be about nothing; make one from the model's files"
        )
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": each.name, "digest": {"sha256": each.sha256}} for each in subjects],
        "predicateType": PREDICATE_TYPE,
        "predicate": cyclonedx_of(manifest),
    }
