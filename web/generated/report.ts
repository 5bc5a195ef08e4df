// Generated from src/headscope/figures/chart_types.py and src/headscope/reporting/report_types.py by generate_types.py.

export type MaybeNumber = number | null;

export type HeadId = [number, number, number];

/** A head by subject, layer and head, which the page makes into a button. */
export interface HeadPart {
  head: HeadId;
}

/** A figure by its id, which the page makes into a link: ` (Fig. 3)`. */
export interface FigurePart {
  figure: string;
}

/** Evidence for a claim, shown with the intervals on hover and focus. */
export interface AsidePart {
  aside: string;
  /** p value of the claim, corrected within its sentence; without one, it describes. */
  p?: number;
}

export type SentencePart = string | HeadPart | FigurePart | AsidePart;

export type Phrase = SentencePart[];

/** A model and its results. */
export interface SubjectEntry {
  title: string;
  layers: number[];
  heads: number;
  causal: boolean;
  page: string | null;
}

/** A weight from a query to a key, by their positions in a numbered document. */
export interface Arc {
  weight: MaybeNumber;
  document: number;
  query: number;
  key: number;
}

/** Fields of all figures. */
export interface Common {
  id: string;
  title: string;
  caption: Phrase;
  equation: string | null;
  paper: string;
}

/** `layer head`: the values of all heads, with the bounds of their intervals. */
export interface HeadValues {
  value: MaybeNumber[][];
  low?: MaybeNumber[][];
  high?: MaybeNumber[][];
}

/** A variable with one value per head, for each subject. */
export interface VariableEntry {
  id: string;
  name: string;
  group: string;
  label: string;
  units: string;
  share: boolean;
  paper: string;
  meaning: string;
  values: (HeadValues | null)[];
  /** Values by layer, beside the heads. */
  layers?: (Line | null)[];
}

/** All heads as a grid; roles by subject, layer and head, "" without one. */
export interface HeadsFigure extends Common {
  kind: "heads";
  variables: VariableEntry[];
  roles: (string[][] | null)[];
  /** One scale for all variables. */
  shared?: boolean;
}

/** Title and units of an axis, or of a column of panels. */
export interface Axis {
  title: string;
  units: string;
  share: boolean;
  equation?: string;
  log?: boolean;
}

/** Values along an axis, with the bounds of their intervals; "" names the only line. */
export interface Line {
  name: string;
  x: number[];
  value: MaybeNumber[];
  low?: MaybeNumber[];
  high?: MaybeNumber[];
  /** Values of single heads. */
  points?: MaybeNumber[][];
}

/** A horizontal line to compare values with. */
export interface Level {
  name: string;
  value: MaybeNumber;
}

/** Lines of one subject in one column. */
export interface LinePanel {
  series: Line[];
  baseline: Level | null;
  note?: string;
}

/** Panels of one subject. */
export interface LineRow {
  subject: number;
  panels: (LinePanel | null)[];
}

/** Lines by layer or distance. */
export interface LinesFigure extends Common {
  kind: "lines";
  axis: string;
  columns: Axis[];
  rows: LineRow[];
  bars?: boolean;
  /** One scale for all columns. */
  shared?: boolean;
}

/** Values of one subject by label and layer. */
export interface MatrixPanel {
  subject: number;
  x: number[];
  value: (MaybeNumber[] | null)[];
  low: (MaybeNumber[] | null)[];
  high: (MaybeNumber[] | null)[];
}

/** Labels by layer, in shades. */
export interface MatrixFigure extends Common {
  kind: "matrix";
  labels: string[];
  units: string;
  share: boolean;
  panels: MatrixPanel[];
}

/** A value and the bounds of its interval. */
export interface IntervalCell {
  value: MaybeNumber;
  low: MaybeNumber;
  high: MaybeNumber;
  /** Whether the value is a share, if rows of the column differ. */
  share?: boolean;
}

export type Cell = string | MaybeNumber | IntervalCell | HeadPart;

/** Heading and kind of a column. */
export interface TableColumn {
  label: string;
  kind: "text" | "count" | "head" | "bar" | "share" | "number" | "difference";
  /** Index of the column with the bar's baseline. */
  against?: number;
  equation?: string;
}

/** Rows of cells. */
export interface TableFigure extends Common {
  kind: "table";
  columns: TableColumn[];
  rows: Cell[][];
}

/** Two variables to compare, by id, with a note for each subject. */
export interface Preset {
  title: string;
  x: string;
  y: string;
  notes: string[];
}

/** Names of heads by layer and head, where measured. */
export interface FinderPanel {
  subject: number;
  roles: string[][] | null;
}

/** Heads between any two variables. */
export interface FinderFigure extends Common {
  kind: "finder";
  presets: Preset[];
  panels: FinderPanel[];
  /** Variables of the presets, without a figure of all heads. */
  variables?: VariableEntry[];
}

/** Heads of one subject in the plane; `effect` is the rise of the loss in nats per token. */
export interface MapPanel {
  subject: number;
  layer: number[];
  head: number[];
  x: number[];
  y: number[];
  role: string[];
  cluster: number[];
  effect?: MaybeNumber[];
  note: string;
  /** By number of clusters. */
  silhouette?: Line;
}

/** Heads in the plane, near where they attend alike. */
export interface MapFigure extends Common {
  kind: "map";
  panels: MapPanel[];
}

/** One head, the reason to show it, and its strongest links. */
export interface ExemplarHead {
  layer: number;
  head: number;
  why: string;
  exemplars: Arc[];
}

/** Heads of one subject. */
export interface ExemplarPanel {
  subject: number;
  heads: ExemplarHead[];
}

/** Documents with a head's highest weights. */
export interface ExemplarsFigure extends Common {
  kind: "exemplars";
  panels: ExemplarPanel[];
  /** Documents of the arcs, without a report. */
  documents?: string[][];
}

/** Further values by group. */
export interface DotMark {
  name: string;
  symbol: "ring" | "tick" | "triangle" | "square";
  values: MaybeNumber[];
}

/** Values by subject and group, and what to compare them with. */
export interface DotColumn extends Axis {
  values: ((IntervalCell | MaybeNumber)[])[];
  baselines: MaybeNumber[][];
  marks?: DotMark[];
  level?: Level;
  /** Names of the rows, where columns differ. */
  groups?: string[];
}

/** Groups of documents side by side. */
export interface DotsFigure extends Common {
  kind: "dots";
  groups: string[];
  subjects: number[];
  columns: DotColumn[];
  /** Texts at the end of each row. */
  notes?: string[];
}

export type Figure = HeadsFigure | LinesFigure | MatrixFigure | TableFigure | FinderFigure | MapFigure | ExemplarsFigure | DotsFigure;

/** A weight between two words; `missed` links a word to the target that it missed. */
export interface WordLink {
  query: number;
  key: number;
  weight: number;
  kind: "other" | "right" | "wrong" | "missed";
}

/** Words with the weights between them. */
export interface ExampleSentence {
  title: string;
  words: string[];
  links: WordLink[];
}

/** Sentences under one head, with right and wrong links. */
export interface SentencesFigure extends Common {
  kind: "sentences";
  sentences: ExampleSentence[];
}

export type Chart = Figure | SentencesFigure;

export type Tree = (string | Tree)[];

/** A `HeadCard`: rows of name, value and rank by topic; nearest heads; arcs. */
export interface ReportCard {
  layer: number;
  head: number;
  summary: string;
  evidence: [string, string[][]][];
  nearest: [number, number, MaybeNumber][];
  exemplars: Arc[];
}

/** Figures on one topic. */
export interface Section {
  id: string;
  title: string;
  text: Phrase[];
  figures: Figure[];
}

/** Sentences on one topic. */
export interface Paragraph {
  topic: string;
  sentences: Phrase[];
}

/** Sentences about one subject; `subject` is null for sentences between subjects. */
export interface Finding {
  subject: number | null;
  title: string;
  paragraphs: Paragraph[];
}

/** Names and texts under a title. */
export interface Rows {
  title: string;
  rows: [string, string][];
}

/** A model, and its runs. */
export interface Provenance extends Rows {
  runs: Rows[];
}

/** The whole report. */
export interface Report {
  format: string;
  version: number;
  title: string;
  subjects: SubjectEntry[];
  findings: Finding[];
  sections: Section[];
  equations: Record<string, Tree>;
  cards: ReportCard[][];
  documents: string[][];
  provenance: Provenance[];
}
