import type { Scene } from "../layout/scene.ts";
import { make } from "./element.ts";
import type { Scope } from "./scope.ts";

export class NeuronView {
  readonly element = make("section", { class: "pane neurons" });
  constructor(readonly scope: Scope) {}
  render(): void {}
  scene(): Scene {
    throw new Error("later");
  }
}
