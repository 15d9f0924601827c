import { Group, Slider, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { memo, useId, useMemo, useState } from "react";
import { contentOptions, type Output, useMediaFiles } from "@/features/job/api/outputs";
import { BlobImage } from "@/features/job/outputs/blob-image";
import { LIMITS, textOf } from "@/features/job/outputs/kinds";
import { CellTable } from "@/features/job/outputs/preview";
import type { Job } from "@/shared/api/types";
import controls from "@/shared/curves/controls/controls.module.css";
import { bytes, count, metric, plural } from "@/shared/format";
import { Pending } from "@/shared/ui/problem";
import classes from "./media.module.css";
import { type HistogramMedia, type MediaSeries, mediaOf, parseMedia } from "./media-series";

const MOST = LIMITS.image;

/** Images, tables and histograms that the job's script has logged; nothing without any. */
export function Media({ job }: { job: Job }) {
  const { data } = useMediaFiles(job);
  const { outputs } = (job.spec ?? {}) as { outputs?: { path?: string } };
  const series = useMemo(() => mediaOf(data ?? [], outputs?.path), [data, outputs?.path]);
  const id = useId();
  if (series.length === 0) return null;
  return (
    <section aria-labelledby={id}>
      <Title order={2} size="h5" id={id} mb="sm">
        Media
      </Title>
      <div className={controls.grid}>
        {series.map((each) => (
          <Panel key={each.name} jobId={job.id} series={each} />
        ))}
      </div>
    </section>
  );
}

function Panel({ jobId, series }: { jobId: string; series: MediaSeries }) {
  const { name, items } = series;
  // Until a step is chosen, the newest is shown, also when there is a newer one.
  const [chosen, setChosen] = useState<number | null>(null);
  const last = items.length - 1;
  const index =
    chosen === null
      ? last
      : Math.max(
          0,
          items.findLastIndex((i) => i.step <= chosen),
        );
  const item = items[index];
  if (item === undefined) return null;
  const stepAt = (at: number) => items[at]?.step ?? 0;
  return (
    <figure className={`app-card ${classes.panel}`}>
      <Group component="figcaption" justify="space-between" wrap="nowrap">
        <Text size="sm" fw={600} className={classes.name ?? ""} title={name}>
          {name}
        </Text>
        <Text size="xs" c="dimmed" className="numbers nowrap">
          step {count(item.step)}
        </Text>
      </Group>
      <div className={classes.content}>
        <Content jobId={jobId} name={`${name}, step ${item.step}`} file={item.file} />
      </div>
      {last > 0 ? (
        <Slider
          size="sm"
          min={0}
          max={last}
          value={index}
          label={(at) => count(stepAt(at))}
          thumbLabel={`Step of ${name}`}
          thumbProps={{ "aria-valuetext": `step ${item.step}` }}
          onChange={(at) => setChosen(at === last ? null : stepAt(at))}
        />
      ) : null}
    </figure>
  );
}

interface ContentProps {
  jobId: string;
  name: string;
  file: Output;
}

const Content = memo(function Content({ jobId, name, file }: ContentProps) {
  const isTooLarge = file.size > MOST;
  const content = useQuery({
    ...contentOptions(jobId, file, MOST),
    enabled: !isTooLarge,
    // While the slider moves, the last one stays.
    placeholderData: keepPreviousData,
  });
  if (isTooLarge) {
    return (
      <Text size="xs" c="dimmed">
        Above {bytes(MOST)}: see Outputs.
      </Text>
    );
  }
  if (content.data === undefined) return <Pending query={content} what={name} height={160} />;
  if (startsAsPng(content.data))
    return (
      <BlobImage content={content.data} type="image/png" alt={name} className={classes.image} />
    );
  return <Parsed name={name} text={textOf(content.data) ?? ""} />;
});

/** By its content: while another one is loaded, the name is already that one's. */
function startsAsPng(content: ArrayBuffer): boolean {
  const [first, second] = new Uint8Array(content);
  return first === 0x89 && second === 0x50;
}

function Parsed({ name, text }: { name: string; text: string }) {
  const media = useMemo(() => parseMedia(text), [text]);
  if (media?.kind === "table") return <CellTable header={media.columns} rows={media.rows} />;
  if (media?.kind === "histogram") return <Histogram name={name} histogram={media} />;
  return (
    <Text size="xs" c="dimmed">
      Not an image, a table or a histogram.
    </Text>
  );
}

function Histogram({ name, histogram }: { name: string; histogram: HistogramMedia }) {
  const { counts, edges, nonfinite } = histogram;
  const most = Math.max(1, ...counts);
  const total = counts.reduce((sum, each) => sum + each, nonfinite);
  return (
    <>
      <div className={classes.bars} role="img" aria-label={`Histogram of ${name}`}>
        {counts.map((each, i) => (
          <div
            key={edges[i]}
            className={classes.bar}
            style={{ height: `${each > 0 ? Math.max(1, (100 * each) / most) : 0}%` }}
            title={`${metric(edges[i])} to ${metric(edges[i + 1])}: ${count(each)}`}
          />
        ))}
      </div>
      <Group justify="space-between" className="numbers small dimmed">
        <span>{metric(edges.at(0))}</span>
        <span>
          {plural(total, "value")}
          {nonfinite > 0 ? `, ${count(nonfinite)} not finite` : ""}
        </span>
        <span>{metric(edges.at(-1))}</span>
      </Group>
    </>
  );
}
