"""Types of the payload: the contract between Python and the front end.

`web/generate_types.py` writes `web/generated/payload.ts` from this file, which imports nothing but
`typing`. Numbers that name a buffer are indices into the payload's buffers.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

PageHost = Literal["file", "notebook", "lab", "live"]
RoleId = Literal[
    "previous_token",
    "next_token",
    "current_token",
    "duplicate_token",
    "induction",
    "broad",
    "first_token",
    "special_token",
    "punctuation",
]
PiecePart = list[str | int | float] | None


class NumbersPart(TypedDict):
    """Real numbers as 16-bit integers, one step (scale) for each index of the first `axes`."""

    shape: list[int]
    axes: int
    data: int
    steps: int


class TokensPart(TypedDict):
    """Tokens of one stack."""

    tokens: list[str]
    special: list[int]
    segments: list[int]
    generated: list[int]
    words: list[int]
    word_texts: list[str]
    pieces: NotRequired[list[PiecePart]]
    """Patches and frames; missing for plain text."""


class VectorsPart(TypedDict):
    """Vectors of one layer."""

    layer: int
    scale: float | None
    """Factor on q·k; null if it is not a plain factor (several products)."""
    groups: list[int]
    """Key group of each head."""
    queries: NumbersPart
    keys: NumbersPart
    values: NotRequired[NumbersPart | None]
    outputs: NotRequired[NumbersPart | None]
    scores: NotRequired[NumbersPart | None]


class RolePart(TypedDict):
    """Role of one head over a corpus, or in a text."""

    role: RoleId | None
    share: float | None
    """Share of attention with this role, over the queries that could show it."""
    queries: int


class TopPart(TypedDict):
    """Kept keys of each row."""

    count: int
    steps: list[int]
    """Buffer of each layer, `head query rank`: steps from key to key, low bytes and high bytes."""
    rest: int
    """Buffer of coarse codes, `layer head query`: the sum of the weights that are not kept."""


class BlockPart(TypedDict):
    """One attention block of a trace."""

    name: str
    queries: str
    keys: str
    causal: bool
    layers: list[int]
    heads: int
    present: list[list[int]]
    shape: list[int]
    coarse: list[int]
    """Buffer of each layer, `head query key`; `head query rank` where rows keep some keys."""
    fine: list[int] | None
    sums: NotRequired[int]
    """Buffer of float32, `layer head query`; missing if all rows sum to 1."""
    visible: NotRequired[int]
    """Buffer of bytes, `layer query key`; missing if queries see all keys, or all earlier ones."""
    groups: list[list[int]] | None
    roles: NotRequired[list[list[RolePart]]]
    """Roles over a corpus, by layer and head."""
    vectors: list[VectorsPart]
    top: NotRequired[TopPart]


class Answer(TypedDict):
    """One predicted token or label."""

    text: str
    probability: float


class PredictionPart(TypedDict):
    """Top predictions at one position; null is the whole text."""

    position: int | None
    top: list[Answer]


class PredictionsPart(TypedDict):
    """Top predictions of a trace."""

    kind: Literal["next", "mask", "label"]
    positions: list[PredictionPart]


class PredictionEffects(TypedDict):
    """Log-probabilities of the candidates without each head."""

    kind: Literal["prediction"]
    position: int | None
    candidates: list[str]
    before: list[float]
    """Log-probabilities with all heads."""
    after: NumbersPart


class SimilarityPart(TypedDict):
    """Cosine similarity of two texts, with all heads and without each."""

    before: float
    after: list[list[float | None]]


class VectorEffects(TypedDict):
    """Cosine distance of a text's vector with and without each head."""

    kind: Literal["cosine_distance"]
    pooling: str
    cosine_distance: list[list[float | None]]
    cosine_similarity: SimilarityPart | None


EffectsPart = PredictionEffects | VectorEffects


class ImagePart(TypedDict):
    """Image of a trace; `pixels` is a buffer of RGB bytes."""

    width: int
    height: int
    pixels: int


class SoundPart(TypedDict):
    """Audio of a trace; `peaks` is a buffer."""

    seconds: float
    count: int
    peaks: int


class EditedPart(TypedDict):
    """A trace: tokens, attention, predictions and effects."""

    model: str
    changed: str | None
    """Description of the edits of the model."""
    over: NotRequired[str]
    stacks: dict[str, TokensPart]
    blocks: list[BlockPart]
    predictions: PredictionsPart | None
    effects: EffectsPart | None
    images: NotRequired[list[ImagePart]]
    sound: NotRequired[SoundPart]


class TracePart(EditedPart):
    """A trace with its title."""

    title: str


class Bounded(TypedDict):
    """A value, and its interval where it has one."""

    value: float
    low: float | None
    high: float | None


class Relation(Bounded):
    """Accuracy of a head for one relation, beside a rule without attention."""

    name: str
    baseline: float | None
    baseline_name: str


class CardNumber(Bounded):
    """One measured number of a head."""

    name: str
    title: str
    unit: str


class LinkedDocument(TypedDict):
    """A document with its strongest links: query, key, weight."""

    tokens: list[str]
    links: list[tuple[int, int, float]]


class SampleDocument(LinkedDocument):
    """A document of one fifth of the scale of a head's highest weight."""

    share: float
    """Share of all documents in this fifth."""


class PageCard(TypedDict):
    """A `HeadCard` as pages show it."""

    sentences: list[str]
    relations: list[Relation]
    looks: list[CardNumber]
    """Shares of attention by target."""
    numbers: list[CardNumber]
    """Other measurements."""
    exemplars: list[LinkedDocument]
    samples: NotRequired[list[SampleDocument]]
    """Documents from strong to weak, one for each fifth of the scale (`head_samples`)."""
    neighbors: list[str]


class EvidencePart(TypedDict):
    """Cards of all heads, by `L0H1`, and the meaning of each measurement."""

    about: str
    meanings: dict[str, str]
    cards: dict[str, PageCard]


class StoryStep(TypedDict):
    """A caption and the selection it is about."""

    caption: str
    selection: str


class TourPart(TypedDict):
    """Heads of the tour through a page of a language model, as `L0H1`."""

    reader: str
    """Head that reads the predicted word most, else one word most."""
    decider: str
    """Head with the largest effect on the prediction."""


class ExercisePart(TypedDict):
    """A question about the heads of a page, and its answer."""

    question: str
    selection: str
    answer: Literal["effect", "heads"] | RoleId
    """Heads with the largest effect, heads named in `heads`, or heads with a role."""
    heads: list[str]


class WirePart(TypedDict):
    """One exact wire; see `headscope.results.wires.Wire`. Heads are −1 where there is none."""

    source: str
    reader: str
    by: Literal["q", "k", "v", "mlp", "logits"]
    source_layer: int
    source_head: int
    layer: int
    reader_heads: list[int]
    share: float
    low: float | None
    high: float | None
    stability: float | None
    p: float | None
    at: int
    """Position where the wire is read; −1 if it was not measured."""
    part: float | None
    by_head: dict[str, float]
    values: list[float]
    """Share in each pair; their mean is `share`."""


class CurvePart(TypedDict):
    """Faithfulness of circuits with a share k of all wires, on held-out pairs."""

    k: list[float]
    faithfulness: list[float | None]
    cpr: float
    cmd: float
    pairs: int


class WiresPart(TypedDict):
    """The largest wires of a task, drawn over its first pair."""

    model: str
    task: str
    holds: str
    tokens: list[list[str]]
    changed: list[int]
    """Positions whose tokens differ."""
    answers: list[str]
    """Target and foil."""
    position: int
    total: int
    exact: int
    pairs: list[list[str]]
    templates: list[int]
    """Template of each pair."""
    wires: list[WirePart]
    curve: CurvePart | None


class Example(TypedDict):
    """One trace, or two to compare."""

    title: str
    traces: list[int]


class LiveFile(TypedDict):
    """A file beside the page, or an element of the page with this id (base64)."""

    name: str
    bytes: int
    sha256: str
    """Hash of the bytes as stored, before they are unpacked."""
    source: Literal["file", "element"]


class LiveTensor(TypedDict):
    """Input of the graph: ids, or a buffer of float32. `dims` are those of one row of a batch."""

    name: str
    dims: list[int]
    ids: list[int] | None
    data: int | None


class LiveBlock(TypedDict):
    """Attention block of the graph; gates count layers over all blocks, in their order."""

    name: str
    prefix: str
    """First letters of the names of its outputs."""
    layers: list[int]
    heads: int
    groups: list[list[int]] | None
    scales: list[float | None]
    causal: bool
    vectors: list[str]
    """Names among queries, keys, values that the graph returns."""


class LiveCase(TypedDict):
    """Inputs with the numbers that the graph gave when it was exported."""

    input: list[LiveTensor]
    off: tuple[int, int] | None
    """Row of the gate, and the head, whose output is 0."""
    rows: list[int]
    """Positions of the logits."""
    outputs: dict[str, int]
    """Buffers of float32 by output: `output`, and attention of each block."""
    tolerance: float
    """Largest difference: of weights as it is, of the output times its largest value."""


class LiveProof(TypedDict):
    """Differences measured at export, and cases to repeat in the page."""

    maps: float
    """Largest difference of attention between graph and model, both with all digits."""
    output: float
    """Largest difference of outputs, divided by the largest output."""
    storage_maps: float
    """The same two differences with the weights as they are stored."""
    storage_output: float
    cases: list[LiveCase]


class LivePart(TypedDict):
    """Model that runs in the page."""

    model: str
    kind: Literal["next", "mask", "label", "vector"]
    labels: list[str]
    exclusive: bool
    """Whether labels exclude one another: softmax, otherwise a sigmoid each."""
    pooling: Literal["mean", "first"]
    blocks: list[LiveBlock]
    """The main one first."""
    has_types: bool
    max_tokens: int
    bytes: int
    memory: int
    """Estimated bytes that the tab needs."""
    storage: str
    files: list[LiveFile]
    """Parts of the model, to be joined in this order."""
    wasm: LiveFile
    worker: LiveFile
    tokenizer: LiveFile
    """Tables, or the names of all tokens where typed texts are refused."""
    tokenizer_refusal: str | None
    mask_token: int | None
    texts: list[str | None]
    inputs: list[list[LiveTensor] | None]
    """Inputs of each stored trace."""
    proof: LiveProof


class Header(TypedDict):
    """Header of the payload; buffers follow."""

    format: str
    version: int
    place: PageHost
    selection: str
    story: list[StoryStep]
    tour: NotRequired[TourPart]
    exercise: NotRequired[list[ExercisePart]]
    wires: NotRequired[WiresPart]
    examples: list[Example]
    steps: NotRequired[list[int]]
    """Training step of each example: one text at several checkpoints."""
    command: str
    """Shell command for a live page; empty for attention without a model."""
    evidence: EvidencePart | None
    report: NotRequired[str]
    """Address of a report on the model."""
    live: NotRequired[LivePart]
    traces: list[TracePart]


class ScoreTerm(TypedDict):
    """One term of the residual stream in a score."""

    name: str
    query_side: float
    key_side: float
    share: float


class ScoreSum(TypedDict):
    """One score as a sum over the terms of the residual stream."""

    total: float
    parts: list[ScoreTerm]
    against: str
    """Description of the contrast."""
