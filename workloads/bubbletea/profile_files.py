"""Load prefill profiles by name or path.

A profile is a JSON file: either estimated from a data sheet, or measured prompts to which the profile is fitted.
Shipped profiles are in ``profiles/`` beside this module; a user's own profile is given by its path.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Literal

from pydantic import Field

from wanbed.ground.errors import InputError, did_you_mean
from wanbed.ground.json_document import read_content
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import MAX_DURATION_NS
from wanbed.workloads.bubbletea.prefill_profile import LEAST_SIZES, PrefillProfile, TimedChunk, fit_chunks
from wanbed.workloads.bubbletea.trace_formats import MAX_TOKENS
from wanbed.workloads.gpt.gpt_config import MAX_HEADS, MAX_HIDDEN, MAX_LAYERS, bytes_per_element
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.profiles.catalogue import parse_profile
from wanbed.workloads.profiles.compute_profile import (
    Efficiency,
    MeasuredConditions,
    MeasuredTime,
    PerSecond,
    ProfilePrecision,
    ProfileSource,
)

_SHIPPED = Path(__file__).parent / "profiles"
_SUFFIX = ".json"


class PrefillProfileFile(StrictModel):
    """The fields that every file has. A subclass adds its figures and computes the profile from them."""

    title: str = Field(min_length=1)
    basis: Literal["measured", "estimated"]
    device: str = Field(min_length=1)
    precision: ProfilePrecision
    source: tuple[ProfileSource, ...] = Field(min_length=1)

    def profile_of(self, model: InferenceModel) -> PrefillProfile:
        """Return the profile for a model. Raises InputError, one line, if the file does not apply to that model."""
        if model.bytes_per_element != bytes_per_element(self.precision):
            raise InputError(
                f"prefill profile {self.title!r}: in {self.precision}, and {model.name} has "
                f"{model.bytes_per_element} bytes an element: take a model and a profile of one precision"
            )
        return self._profile_of(model)

    @abstractmethod
    def _profile_of(self, model: InferenceModel) -> PrefillProfile: ...


class EstimatedPrefill(PrefillProfileFile):
    """A profile estimated from operations and bytes. ``efficiency`` is an assumption.

    The times per token and per pair of tokens are the operations of ``InferenceModel.flops`` / (peak x efficiency). The
    fixed time is a layer's weights / memory bandwidth, because each chunk reads them once. Reading and computing are
    added although a GPU overlaps them, so short chunks are estimated too slow. Embedding, head and kernel launches are
    not counted.
    """

    basis: Literal["estimated"]
    peak_flops_per_s: PerSecond
    efficiency: Efficiency
    memory_bandwidth_bytes_per_s: PerSecond

    def _profile_of(self, model: InferenceModel) -> PrefillProfile:
        flops_per_ns = self.peak_flops_per_s * self.efficiency / 1e9
        # There are n p + n (n + 1) / 2 pairs, of which a profile counts n (p + n / 2): half a pair a token is missing.
        return PrefillProfile(
            fixed_ns=model.weight_bytes(1, embedding=False, head=False) / self.memory_bandwidth_bytes_per_s * 1e9,
            per_token_ns=(model.flops_per_token + model.flops_per_token_pair / 2) / flops_per_ns,
            per_token_pair_ns=model.flops_per_token_pair / flops_per_ns,
            source=self.title,
            measured=False,
        )


class MeasuredPrompt(StrictModel):
    """One prompt, prefilled at once through all layers. ``measured`` holds the repeats behind ``time_ns``, if kept."""

    tokens: int = Field(ge=1, le=MAX_TOKENS)
    time_ns: int = Field(ge=1, le=MAX_DURATION_NS)
    measured: MeasuredTime | None = None


class MeasuredChunk(StrictModel):
    """A chunk of ``tokens`` after ``prior_tokens``, through all layers. ``measured`` holds the repeats, if kept."""

    tokens: int = Field(ge=1, le=MAX_TOKENS)
    prior_tokens: int = Field(ge=1, le=MAX_TOKENS)
    time_ns: int = Field(ge=1, le=MAX_DURATION_NS)
    measured: MeasuredTime | None = None


class MeasuredLayers(StrictModel):
    """The measured layers. A profile fitted to them applies to any number of layers of these sizes."""

    layers: int = Field(ge=1, le=MAX_LAYERS)
    hidden: int = Field(ge=1, le=MAX_HIDDEN)
    heads: int = Field(ge=1, le=MAX_HEADS)
    kv_heads: int = Field(ge=1, le=MAX_HEADS)
    head_dim: int = Field(ge=1, le=MAX_HIDDEN)
    feed_forward: int = Field(ge=1, le=MAX_HIDDEN)


class MeasuredPrefill(PrefillProfileFile):
    """Prompts and chunks measured on the device, to which the profile is fitted.

    ``chunks`` is empty in files that have whole prompts only. The profile's ``error`` is that of the fit.
    """

    basis: Literal["measured"]
    model: MeasuredLayers
    prompts: tuple[MeasuredPrompt, ...] = Field(min_length=LEAST_SIZES)
    chunks: tuple[MeasuredChunk, ...] = ()
    conditions: MeasuredConditions | None = None

    def _profile_of(self, model: InferenceModel) -> PrefillProfile:
        for name, measured in self.model:
            if name != "layers" and getattr(model, name) != measured:
                raise InputError(
                    f"prefill profile {self.title!r}: measured with {name} {measured}, and {model.name} has "
                    f"{getattr(model, name)}: measure this model, or take an estimated profile"
                )
        chunks = [
            *(TimedChunk(prompt.tokens, 0, prompt.time_ns) for prompt in self.prompts),
            *(TimedChunk(chunk.tokens, chunk.prior_tokens, chunk.time_ns) for chunk in self.chunks),
        ]
        try:
            return fit_chunks(chunks, self.model.layers, source=self.title)
        except ValueError as fault:
            raise InputError(f"prefill profile {self.title!r}: {fault}") from None


_MODELS: dict[str, type[PrefillProfileFile]] = {"estimated": EstimatedPrefill, "measured": MeasuredPrefill}


def prefill_profile_names() -> tuple[str, ...]:
    """Return the names of all shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in _SHIPPED.iterdir() if path.suffix == _SUFFIX))


def load_prefill_profile(
    name_or_path: str, model: InferenceModel, *, relative_to: Path | None = None
) -> PrefillProfile:
    """Load a profile for a model, by the profile's name or its file's path.

    A name that ends in .json or contains a slash is a path, relative to the folder ``relative_to`` (the working
    directory if None). Raises InputError, one line: for an unknown name (with the most similar one), for an unusable
    file, and for a file that does not apply to the model.
    """
    if name_or_path.endswith(_SUFFIX) or "/" in name_or_path:
        return read_prefill_profile((relative_to or Path()) / name_or_path).profile_of(model)
    names = prefill_profile_names()
    if name_or_path not in names:
        remedy = did_you_mean(name_or_path, names, f"known: {', '.join(names)}")
        raise InputError(f"prefill.profile: there is none of the name {name_or_path!r}, {remedy}")
    return read_prefill_profile(_SHIPPED / f"{name_or_path}{_SUFFIX}").profile_of(model)


def read_prefill_profile(path: Path) -> PrefillProfileFile:
    """Read one profile's file. Raises InputError, one line that starts with the file's path."""
    what = "prefill profile"
    return parse_profile(path, read_content(path, what), _MODELS, what, "the one that is shipped")
