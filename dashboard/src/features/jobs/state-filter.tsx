import { useSummary } from "@/shared/api/cluster";
import { useMe } from "@/shared/api/login";
import { count } from "@/shared/format";
import { useJobGroups } from "./api/job-groups";
import { counted, FILTERS, type Filter, stateCounts } from "./filters";
import classes from "./jobs-page.module.css";

interface StateFilterProps {
  show: Filter;
  search: string;
  query: string;
  onChange: (next: Filter) => void;
}

/** The filters with how many jobs each would list. */
export function StateFilter({ show, search, query, onChange }: StateFilterProps) {
  const summary = useSummary();
  const me = useMe();
  const isNarrowed = `${search}${query}`.trim() !== "";
  // The summary, which costs nothing, counts the jobs of all projects: those that admins see.
  const isCounted = isNarrowed || me.data?.admin === false;
  const matching = useJobGroups(isCounted ? "state" : undefined, { states: null, search, query });
  const everything = me.data?.admin ? summary.data?.jobs : undefined;
  const counts = isCounted ? stateCounts(matching.data) : everything;
  return (
    <fieldset className={classes.filters}>
      <legend className="sr-only">Show jobs by state</legend>
      {(Object.keys(FILTERS) as Filter[]).map((filter) => (
        <button
          key={filter}
          type="button"
          className={classes.filter}
          aria-pressed={show === filter}
          onClick={() => onChange(filter)}
        >
          {FILTERS[filter].label}
          <span className={classes.count}>{counts ? countText(filter, counts) : ""}</span>
        </button>
      ))}
    </fieldset>
  );
}

function countText(filter: Filter, counts: Record<string, number>): string {
  const found = counted(filter, counts);
  return found === undefined ? "" : count(found);
}
