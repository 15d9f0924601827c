import { useMemo } from "react";
import { useChosenProject } from "../owners/chosen-project";
import { withProject } from "./spec-text";

export interface Example {
  label: string;
  text: string;
}

/** The first is what a new document begins with. */
export type Examples = readonly [Example, ...Example[]];

/** The examples in the project to which the lists are reduced. */
export function useExamples(examples: Examples): Examples {
  const project = useChosenProject();
  return useMemo(() => {
    const inProject = (each: Example) => ({ ...each, text: withProject(each.text, project) });
    const [first, ...rest] = examples;
    return [inProject(first), ...rest.map(inProject)];
  }, [examples, project]);
}
