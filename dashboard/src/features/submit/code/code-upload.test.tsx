import { fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { shown } from "@/test/shown";
import { CodeUpload } from "./code-upload";

const drop = (entry: unknown, file: File | null = null) =>
  fireEvent.drop(screen.getByRole("region", { name: "Code" }), {
    dataTransfer: { items: [{ webkitGetAsEntry: () => entry, getAsFile: () => file }] },
  });

it("says why a dropped folder cannot be read", async () => {
  shown(<CodeUpload text="name: a" onChange={() => {}} />);
  const readEntries = (_: unknown, refuse: (error: Error) => void) => refuse(new Error("no right"));
  drop({ isDirectory: true, name: "lab", createReader: () => ({ readEntries }) });
  expect(await screen.findByText("The folder cannot be read: no right")).toBeVisible();
  drop({ isDirectory: false });
  expect(await screen.findByText(/^That is neither a folder nor a zip/)).toBeVisible();
});

it("says why a dropped zip cannot be used, until the next drop", async () => {
  shown(<CodeUpload text="name: a" onChange={() => {}} />);
  drop({ isFile: true }, new File(["no zip"], "lab.zip"));
  expect(screen.getByRole("region", { name: "Code" })).not.toHaveTextContent("neither");
  expect(await screen.findByText(/^lab.zip is damaged, or is no zip/)).toBeVisible();
  drop({ isFile: true }, new File([""], "notes.txt"));
  expect(await screen.findByText(/^That is neither a folder nor a zip/)).toBeVisible();
  expect(screen.queryByRole("alert")).toBeNull();
});
