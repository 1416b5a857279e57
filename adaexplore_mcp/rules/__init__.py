"""What failures teach: fingerprints, wording, what can be seen in source, ranking, probes. Pure: no file, no SQL, no torch."""

from adaexplore_mcp.rules.bounds import PERFORMANCE, Place, bound, holds_at, narrowest, written
from adaexplore_mcp.rules.family import family_of, operators_of
from adaexplore_mcp.rules.fingerprints import (
    Fingerprint,
    Observation,
    fingerprint_of,
    observed,
    parsed,
    wording,
)
from adaexplore_mcp.rules.fixes import edit_between
from adaexplore_mcp.rules.kinds import KINDS_BY_ID, Kind, Subject, kind_of, of_many_causes
from adaexplore_mcp.rules.lessons import cleaned, objections, words_digest
from adaexplore_mcp.rules.ownwords import OwnWords, own_words
from adaexplore_mcp.rules.probes import PRESENT, PROBE_ENTRY, STARTERS, Starter, names_probe, probe_of
from adaexplore_mcp.rules.published import Line, read_published
from adaexplore_mcp.rules.ranking import Evidence, apis_of_operators, effect, lower_bound, score
from adaexplore_mcp.rules.source_check import VISIBLE, Source, read
from adaexplore_mcp.rules.speeds import SpeedRatio, compared, gpu_of
from adaexplore_mcp.rules.syntax import Sighting

__all__ = [
    "KINDS_BY_ID",
    "PERFORMANCE",
    "PRESENT",
    "PROBE_ENTRY",
    "STARTERS",
    "VISIBLE",
    "Evidence",
    "Fingerprint",
    "Kind",
    "Line",
    "Observation",
    "OwnWords",
    "Place",
    "Sighting",
    "Source",
    "SpeedRatio",
    "Starter",
    "Subject",
    "apis_of_operators",
    "bound",
    "cleaned",
    "compared",
    "edit_between",
    "effect",
    "family_of",
    "fingerprint_of",
    "gpu_of",
    "holds_at",
    "kind_of",
    "lower_bound",
    "names_probe",
    "narrowest",
    "objections",
    "observed",
    "of_many_causes",
    "operators_of",
    "own_words",
    "parsed",
    "probe_of",
    "read",
    "read_published",
    "score",
    "wording",
    "words_digest",
    "written",
]
