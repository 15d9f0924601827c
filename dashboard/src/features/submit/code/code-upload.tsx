import { Button, Group, Paper, Progress, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type DragEvent, useRef, useState } from "react";
import { bytes, plural } from "@/shared/format";
import { Problem } from "@/shared/ui/problem";
import { chosen, dropped, droppedZip, problemOf, type Selection } from "./selection";
import { projectIn, withUpload } from "./spec-code";
import { tarOf } from "./tar";
import { sha256Of, upload } from "./upload";

interface Props {
  text: string;
  onChange: (text: string) => void;
}

/** Sends a folder, or a zip of one, from this computer as the code of the job. */
export function CodeUpload({ text, onChange }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const zipInput = useRef<HTMLInputElement>(null);
  const [selection, setSelection] = useState<Selection | null>(null);
  const [notRead, setNotRead] = useState("");
  const [share, setShare] = useState(0);
  const sending = useMutation({
    mutationFn: async ({ files }: Selection) => {
      setShare(0);
      const archive = tarOf(files);
      const sha256 = await sha256Of(archive);
      await upload(archive, sha256, projectIn(text), setShare);
      return sha256;
    },
    onSuccess: (sha256) => onChange(withUpload(text, sha256)),
  });
  const reading = useMutation({
    // Few jobs come as a zip: its reader is loaded for them alone.
    mutationFn: async (zip: File) => (await import("./zip")).unzipped(zip),
  });
  const choose = (found: Selection | null, why = ""): void => {
    sending.reset();
    reading.reset();
    setSelection(found);
    setNotRead(why);
  };
  const chooseZip = (zip: File): void => {
    choose(null);
    reading.mutate(zip, { onSuccess: setSelection });
  };
  const drop = async (event: DragEvent): Promise<void> => {
    event.preventDefault();
    // What is on its way becomes the code of the spec.
    if (sending.isPending) return;
    const zip = droppedZip(event.dataTransfer.items);
    if (zip) return chooseZip(zip);
    try {
      const found = await dropped(event.dataTransfer.items);
      choose(found, found ? "" : "That is neither a folder nor a zip: drop the code of the job.");
    } catch (error) {
      choose(null, `The folder cannot be read: ${(error as Error).message}`);
    }
  };
  const problem = selection && problemOf(selection);
  return (
    <Paper
      withBorder
      p="sm"
      component="section"
      aria-label="Code"
      onDragOver={(event: DragEvent) => event.preventDefault()}
      onDrop={(event: DragEvent) => void drop(event)}
    >
      <Stack gap="xs">
        <Group gap="sm">
          <Button
            size="xs"
            variant="default"
            disabled={sending.isPending}
            onClick={() => input.current?.click()}
          >
            Choose a folder
          </Button>
          <Button
            size="xs"
            variant="default"
            disabled={sending.isPending}
            onClick={() => zipInput.current?.click()}
          >
            Choose a zip
          </Button>
          <Text size="sm" c="dimmed">
            or drop one here: the code of the job
          </Text>
          <input
            ref={input}
            type="file"
            aria-label="Folder of the code"
            hidden
            // React passes unknown attributes on; the types do not know this one.
            {...{ webkitdirectory: "" }}
            onChange={({ currentTarget }) => {
              if (currentTarget.files?.length) choose(chosen(currentTarget.files));
              currentTarget.value = "";
            }}
          />
          <input
            ref={zipInput}
            type="file"
            aria-label="Zip of the code"
            hidden
            accept=".zip,application/zip"
            onChange={({ currentTarget }) => {
              const zip = currentTarget.files?.[0];
              if (zip) chooseZip(zip);
              currentTarget.value = "";
            }}
          />
        </Group>
        {notRead ? <Text size="sm">{notRead}</Text> : null}
        {reading.isPending ? (
          <Text size="sm" role="status">
            Unpacking {reading.variables.name}…
          </Text>
        ) : null}
        {reading.error ? <Problem error={reading.error} what="Could not use the zip" /> : null}
        {selection ? (
          <Text size="sm">
            {selection.folder}: {plural(selection.files.length, "file")}, {bytes(selection.size)}.
            Left out: caches, .git, virtual environments
            {selection.leftOut.length > 0
              ? `, and ${selection.leftOut.join(", ")}, which may hold secrets`
              : ""}
            . Ignore files are not read.
          </Text>
        ) : null}
        {problem ? (
          <Text size="sm" c="red">
            {problem}
          </Text>
        ) : null}
        {selection && !problem && !sending.isSuccess ? (
          <Button
            size="xs"
            w="fit-content"
            loading={sending.isPending}
            onClick={() => sending.mutate(selection)}
          >
            Upload
          </Button>
        ) : null}
        {sending.isPending ? <Progress value={share * 100} aria-label="Upload" /> : null}
        {sending.isSuccess ? <Text size="sm">Uploaded. The spec names it as its code.</Text> : null}
        {sending.error ? <Problem error={sending.error} what="Could not upload the code" /> : null}
      </Stack>
    </Paper>
  );
}
