// Types of the report that Python writes (src/headscope/reporting). Its check is in data/parse.ts.

import type { RoleId } from "../data/payload.ts";

/** Subject, layer, head. */
export type HeadId = readonly [subject: number, layer: number, head: number];
/** Part of a sentence; an aside is evidence, shown on hover and focus. */
export type Part = string | { head: HeadId } | { figure: string } | { aside: string };
/** Tree of MathML: tag, then children; leaves are text. */
export type MathTree = [string, ...(MathTree | string)[]];
type Maybe = number | null;

export interface Subject {
  readonly title: string;
  readonly layers: number[];
  readonly heads: number;
  readonly causal: boolean;
  readonly page: string | null;
}

export interface Arc {
  readonly weight: number;
  readonly document: number;
  readonly query: number;
  readonly key: number;
}

export interface Card {
  readonly layer: number;
  readonly head: number;
  readonly summary: string;
  readonly evidence: [topic: string, rows: [what: string, value: string, rank: string][]][];
  readonly nearest: [layer: number, head: number, divergence: Maybe][];
  readonly exemplars: Arc[];
}

interface Common {
  readonly id: string;
  readonly title: string;
  readonly caption: Part[];
  readonly equation: string | null;
  readonly paper: string;
}

/** Tables by layer and head. */
export interface HeadValues {
  readonly value: Maybe[][];
  readonly low?: Maybe[][];
  readonly high?: Maybe[][];
}

export interface Variable {
  readonly id: string;
  readonly name: string;
  readonly group: string;
  readonly label: string;
  readonly units: string;
  readonly share: boolean;
  readonly paper: string;
  readonly meaning: string;
  readonly values: (HeadValues | null)[];
}

export interface HeadsFigure extends Common {
  readonly kind: "heads";
  readonly variables: Variable[];
  /** Roles by subject, layer and head; empty without one. */
  readonly roles: ((RoleId | "")[][] | null)[];
}

export interface Axis {
  readonly title: string;
  readonly units: string;
  readonly share: boolean;
  readonly equation?: string;
}

export interface Line {
  readonly name: string;
  readonly x: number[];
  readonly value: Maybe[];
  readonly low?: Maybe[];
  readonly high?: Maybe[];
}

export interface LinePanel {
  readonly series: Line[];
  readonly baseline: { readonly name: string; readonly value: number } | null;
}

export interface LinesFigure extends Common {
  readonly kind: "lines";
  readonly axis: string;
  readonly columns: Axis[];
  readonly rows: { readonly subject: number; readonly panels: (LinePanel | null)[] }[];
}

export interface MatrixFigure extends Common {
  readonly kind: "matrix";
  readonly labels: string[];
  readonly units: string;
  readonly share: boolean;
  readonly panels: {
    readonly subject: number;
    readonly x: number[];
    /** Values by label and layer. */
    readonly value: (Maybe[] | null)[];
    readonly low: (Maybe[] | null)[];
    readonly high: (Maybe[] | null)[];
  }[];
}

export interface Interval {
  readonly value: Maybe;
  readonly low: Maybe;
  readonly high: Maybe;
  /** Whether the value is a share, if rows of the column differ. */
  readonly share?: boolean;
}

export type Cell = string | Maybe | Interval | { readonly head: HeadId };

export interface TableColumn {
  readonly label: string;
  readonly kind: "text" | "count" | "head" | "bar" | "share" | "number" | "difference";
  /** Index of the column with the bar's baseline. */
  readonly against?: number;
}

export interface TableFigure extends Common {
  readonly kind: "table";
  readonly columns: TableColumn[];
  readonly rows: Cell[][];
}

export interface FinderFigure extends Common {
  readonly kind: "finder";
  /** Suggested pairs of variables by id; a note for each subject. */
  readonly presets: {
    readonly title: string;
    readonly x: string;
    readonly y: string;
    readonly notes: string[];
  }[];
  /** Roles by layer and head, where measured. */
  readonly panels: { readonly subject: number; readonly roles: string[][] | null }[];
}

export interface MapFigure extends Common {
  readonly kind: "map";
  readonly panels: {
    readonly subject: number;
    readonly layer: number[];
    readonly head: number[];
    readonly x: number[];
    readonly y: number[];
    readonly role: string[];
    readonly cluster: number[];
    /** Rise of the loss without each head, in nats per token. */
    readonly effect?: Maybe[];
    readonly note: string;
  }[];
}

export interface ExemplarsFigure extends Common {
  readonly kind: "exemplars";
  readonly panels: {
    readonly subject: number;
    readonly heads: { layer: number; head: number; why: string; exemplars: Arc[] }[];
  }[];
}

export interface DotsFigure extends Common {
  readonly kind: "dots";
  readonly groups: string[];
  readonly subjects: number[];
  readonly columns: (Axis & {
    /** Values by subject and group. */
    readonly values: (Interval | Maybe)[][];
    readonly baselines: Maybe[][];
  })[];
}

export type Figure =
  | HeadsFigure
  | LinesFigure
  | MatrixFigure
  | TableFigure
  | FinderFigure
  | MapFigure
  | ExemplarsFigure
  | DotsFigure;

export interface Rows {
  readonly title: string;
  readonly rows: [name: string, text: string][];
}

export interface Report {
  readonly format: string;
  readonly version: number;
  readonly title: string;
  readonly subjects: Subject[];
  readonly findings: {
    subject: number | null;
    title: string;
    paragraphs: { topic: string; sentences: Part[][] }[];
  }[];
  readonly sections: { id: string; title: string; text: Part[][]; figures: Figure[] }[];
  readonly equations: Record<string, MathTree>;
  readonly cards: Card[][];
  readonly documents: string[][];
  readonly provenance: (Rows & { readonly runs: Rows[] })[];
}
