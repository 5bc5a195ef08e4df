"""Charts as plain data: drawn in matplotlib by `paint`, in the browser by `web/src/report`.

`web/generate_types.py` writes `web/generated/report.ts` from this file and `report_types`; this
file imports nothing but `typing`. Null stands for NaN, which JSON does not have.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict, final

MaybeNumber = float | None
HeadId = tuple[int, int, int]
"""Subject, layer, head."""


@final
class HeadPart(TypedDict):
    """A head by subject, layer and head, which the page makes into a button."""

    head: HeadId


@final
class FigurePart(TypedDict):
    """A figure by its id, which the page makes into a link: ` (Fig. 3)`."""

    figure: str


@final
class AsidePart(TypedDict):
    """Evidence for a claim, shown with the intervals on hover and focus."""

    aside: str
    p: NotRequired[float]
    """p value of the claim, corrected within its sentence; without one, it describes."""


SentencePart = str | HeadPart | FigurePart | AsidePart
Phrase = list[SentencePart]


class SubjectEntry(TypedDict):
    """A model and its results."""

    title: str
    layers: list[int]
    heads: int
    causal: bool
    page: str | None


class Arc(TypedDict):
    """A weight from a query to a key, by their positions in a numbered document."""

    weight: MaybeNumber
    document: int
    query: int
    key: int


class Common(TypedDict):
    """Fields of all figures."""

    id: str
    title: str
    caption: Phrase
    equation: str | None
    paper: str


class HeadValues(TypedDict):
    """`layer head`: the values of all heads, with the bounds of their intervals."""

    value: list[list[MaybeNumber]]
    low: NotRequired[list[list[MaybeNumber]]]
    high: NotRequired[list[list[MaybeNumber]]]


class VariableEntry(TypedDict):
    """A variable with one value per head, for each subject."""

    id: str
    name: str
    group: str
    label: str
    units: str
    share: bool
    paper: str
    meaning: str
    values: list[HeadValues | None]
    layers: NotRequired[list[Line | None]]
    """Values by layer, beside the heads."""


class HeadsFigure(Common):
    """All heads as a grid; roles by subject, layer and head, "" without one."""

    kind: Literal["heads"]
    variables: list[VariableEntry]
    roles: list[list[list[str]] | None]
    shared: NotRequired[bool]
    """One scale for all variables."""


class Axis(TypedDict):
    """Title and units of an axis, or of a column of panels."""

    title: str
    units: str
    share: bool
    equation: NotRequired[str]
    log: NotRequired[bool]


class Line(TypedDict):
    """Values along an axis, with the bounds of their intervals; "" names the only line."""

    name: str
    x: list[int]
    value: list[MaybeNumber]
    low: NotRequired[list[MaybeNumber]]
    high: NotRequired[list[MaybeNumber]]
    points: NotRequired[list[list[MaybeNumber]]]
    """Values of single heads."""


class Level(TypedDict):
    """A horizontal line to compare values with."""

    name: str
    value: MaybeNumber


class LinePanel(TypedDict):
    """Lines of one subject in one column."""

    series: list[Line]
    baseline: Level | None
    note: NotRequired[str]


class LineRow(TypedDict):
    """Panels of one subject."""

    subject: int
    panels: list[LinePanel | None]


class LinesFigure(Common):
    """Lines by layer or distance."""

    kind: Literal["lines"]
    axis: str
    columns: list[Axis]
    rows: list[LineRow]
    bars: NotRequired[bool]
    shared: NotRequired[bool]
    """One scale for all columns."""


class MatrixPanel(TypedDict):
    """Values of one subject by label and layer."""

    subject: int
    x: list[int]
    value: list[list[MaybeNumber] | None]
    low: list[list[MaybeNumber] | None]
    high: list[list[MaybeNumber] | None]


class MatrixFigure(Common):
    """Labels by layer, in shades."""

    kind: Literal["matrix"]
    labels: list[str]
    units: str
    share: bool
    panels: list[MatrixPanel]


class IntervalCell(TypedDict):
    """A value and the bounds of its interval."""

    value: MaybeNumber
    low: MaybeNumber
    high: MaybeNumber
    share: NotRequired[bool]
    """Whether the value is a share, if rows of the column differ."""


Cell = str | MaybeNumber | IntervalCell | HeadPart


class TableColumn(TypedDict):
    """Heading and kind of a column."""

    label: str
    kind: Literal["text", "count", "head", "bar", "share", "number", "difference"]
    against: NotRequired[int]
    """Index of the column with the bar's baseline."""
    equation: NotRequired[str]


class TableFigure(Common):
    """Rows of cells."""

    kind: Literal["table"]
    columns: list[TableColumn]
    rows: list[list[Cell]]


class Preset(TypedDict):
    """Two variables to compare, by id, with a note for each subject."""

    title: str
    x: str
    y: str
    notes: list[str]


class FinderPanel(TypedDict):
    """Names of heads by layer and head, where measured."""

    subject: int
    roles: list[list[str]] | None


class FinderFigure(Common):
    """Heads between any two variables."""

    kind: Literal["finder"]
    presets: list[Preset]
    panels: list[FinderPanel]
    variables: NotRequired[list[VariableEntry]]
    """Variables of the presets, without a figure of all heads."""


class MapPanel(TypedDict):
    """Heads of one subject in the plane; `effect` is the rise of the loss in nats per token."""

    subject: int
    layer: list[int]
    head: list[int]
    x: list[float]
    y: list[float]
    role: list[str]
    cluster: list[int]
    effect: NotRequired[list[MaybeNumber]]
    note: str
    silhouette: NotRequired[Line]
    """By number of clusters."""


class MapFigure(Common):
    """Heads in the plane, near where they attend alike."""

    kind: Literal["map"]
    panels: list[MapPanel]


class ExemplarHead(TypedDict):
    """One head, the reason to show it, and its strongest links."""

    layer: int
    head: int
    why: str
    exemplars: list[Arc]


class ExemplarPanel(TypedDict):
    """Heads of one subject."""

    subject: int
    heads: list[ExemplarHead]


class ExemplarsFigure(Common):
    """Documents with a head's highest weights."""

    kind: Literal["exemplars"]
    panels: list[ExemplarPanel]
    documents: NotRequired[list[list[str]]]
    """Documents of the arcs, without a report."""


class DotMark(TypedDict):
    """Further values by group."""

    name: str
    symbol: Literal["ring", "tick", "triangle", "square"]
    values: list[MaybeNumber]


class DotColumn(Axis):
    """Values by subject and group, and what to compare them with."""

    values: list[list[IntervalCell | MaybeNumber]]
    baselines: list[list[MaybeNumber]]
    marks: NotRequired[list[DotMark]]
    level: NotRequired[Level]
    groups: NotRequired[list[str]]
    """Names of the rows, where columns differ."""


class DotsFigure(Common):
    """Groups of documents side by side."""

    kind: Literal["dots"]
    groups: list[str]
    subjects: list[int]
    columns: list[DotColumn]
    notes: NotRequired[list[str]]
    """Texts at the end of each row."""


Figure = (
    HeadsFigure
    | LinesFigure
    | MatrixFigure
    | TableFigure
    | FinderFigure
    | MapFigure
    | ExemplarsFigure
    | DotsFigure
)


class WordLink(TypedDict):
    """A weight between two words; `missed` links a word to the target that it missed."""

    query: int
    key: int
    weight: float
    kind: Literal["other", "right", "wrong", "missed"]


class ExampleSentence(TypedDict):
    """Words with the weights between them."""

    title: str
    words: list[str]
    links: list[WordLink]


class SentencesFigure(Common):
    """Sentences under one head, with right and wrong links."""

    kind: Literal["sentences"]
    sentences: list[ExampleSentence]


Chart = Figure | SentencesFigure
"""All charts. matplotlib draws all but matrices and tables; reports do not have sentences."""
