import { SimpleGrid, TagsInput } from "@mantine/core";
import type { GradientSync, ParallelismSpec, Precision } from "@/client";
import {
  type DimensionFields,
  type ExperimentFields,
  itemText,
  type Kind,
  listOf,
  NEW_DIMENSION,
} from "./experiment-fields";
import { useProblem } from "./inputs";

interface Axis {
  field: string;
  label: string;
  /** Values to choose from; others may be typed. */
  values: readonly string[];
  kinds: readonly Kind[];
}

const STRATEGIES: NonNullable<ParallelismSpec["strategy"]>[] = [
  "ddp",
  "fsdp",
  "tensor",
  "pipeline",
  "model",
  "parameter_server",
];
const PRECISIONS: Precision[] = ["fp32", "bf16", "fp16"];
const COMPRESSIONS: NonNullable<GradientSync["compression"]>[] = [
  "none",
  "fp16",
  "bf16",
  "topk",
  "powersgd",
];
const ALGORITHMS: NonNullable<GradientSync["algorithm"]>[] = [
  "native",
  "ring",
  "tree",
  "halving_doubling",
  "hierarchical",
  "parameter_server",
  "naive",
];
const BENCHMARK: readonly Kind[] = ["benchmark"];

/** What a benchmark or scaling study usually compares. */
const AXES: Axis[] = [
  {
    field: "resources.workers",
    label: "Workers",
    values: ["1", "2", "4", "8"],
    kinds: ["benchmark", "scaling"],
  },
  { field: "parallelism.strategy", label: "Strategies", values: STRATEGIES, kinds: BENCHMARK },
  { field: "training.precision", label: "Precisions", values: PRECISIONS, kinds: BENCHMARK },
  {
    field: "training.global_batch_size",
    label: "Batch sizes",
    values: ["64", "128", "256"],
    kinds: BENCHMARK,
  },
  {
    field: "parallelism.gradient_sync.compression",
    label: "Compressions",
    values: COMPRESSIONS,
    kinds: BENCHMARK,
  },
  {
    field: "parallelism.gradient_sync.algorithm",
    label: "Sync algorithms",
    values: ALGORITHMS,
    kinds: BENCHMARK,
  },
  {
    field: "parallelism.gradient_sync.bucket_mb",
    label: "Bucket sizes (MB)",
    values: ["1", "25", "100"],
    kinds: BENCHMARK,
  },
];

/** Whether a row has an input in the matrix of a kind; a new one is where its name is typed. */
export function isAxis(kind: Kind, { id, field, form }: DimensionFields): boolean {
  if (form !== "values" || id.startsWith("new-")) return false;
  return AXES.some((axis) => axis.field === field && axis.kinds.includes(kind));
}

interface Props {
  fields: ExperimentFields;
  onChange: (space: DimensionFields[]) => void;
}

export function Matrix({ fields: { kind, space }, onChange }: Props) {
  const axes = AXES.filter(
    ({ field, kinds }) =>
      kinds.includes(kind) && !space.some((row) => row.field === field && !isAxis(kind, row)),
  );
  const set = (field: string, values: string) => {
    const row = { ...NEW_DIMENSION, id: `axis-${field}`, field, values };
    const others = space.filter((old) => old.field !== field);
    if (values === "") onChange(others);
    else if (others.length === space.length) onChange([...space, row]);
    else onChange(space.map((old) => (old.field === field ? { ...old, values } : old)));
  };
  return (
    <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
      {axes.map((axis) => (
        <AxisInput
          key={axis.field}
          axis={axis}
          values={space.find(({ field }) => field === axis.field)?.values ?? ""}
          onChange={(values) => set(axis.field, values)}
        />
      ))}
    </SimpleGrid>
  );
}

interface AxisProps {
  axis: Axis;
  values: string;
  onChange: (values: string) => void;
}

function AxisInput({ axis, values, onChange }: AxisProps) {
  const items = listOf(values).map(itemText);
  return (
    <TagsInput
      size="xs"
      label={axis.label}
      data={[...axis.values]}
      value={items}
      placeholder={items.length === 0 ? "as in the job" : ""}
      error={useProblem(`space.${axis.field}`)}
      onChange={(changed) => onChange(changed.join(", "))}
    />
  );
}
