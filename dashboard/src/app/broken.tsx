import type { ErrorComponentProps } from "@tanstack/react-router";
import { useTitle } from "@/shared/title";
import { Problem } from "@/shared/ui/problem";

/** In place of a page that could not be drawn, as after an update of the coordinator. */
export function Broken({ error }: ErrorComponentProps) {
  useTitle("Error");
  return (
    <Problem
      error={error}
      what="The page could not be shown"
      onRetry={() => window.location.reload()}
    />
  );
}
